"""The last acknowledged messages, which an ERROR may be about: limited by number and by bytes."""

from __future__ import annotations

import pytest
from tests.stomp.test_stored_frames import arrived

from redelivery_stomp.disconnect_cause import MOST_BYTES, RECENT, RecentAcknowledgements


def test_the_oldest_batches_make_way() -> None:
    """The oldest batches are dropped above the limit of messages; the last batch stays, however large it is."""
    kept = RecentAcknowledgements()
    one = arrived("artemis", [], b"x")
    kept.add([one] * (RECENT - 1))
    kept.add([one])
    assert len(kept.all()) == RECENT
    kept.add([one])
    assert len(kept.all()) == 2
    kept.add([one] * (RECENT + 1))
    assert len(kept.all()) == RECENT + 1


@pytest.mark.parametrize("part", [2, 4])
def test_large_bodies_make_way_sooner(part: int) -> None:
    """A batch of large messages is dropped sooner, because their bytes are limited, too."""
    kept = RecentAcknowledgements()
    for _ in range(9):
        kept.add([arrived("artemis", [], b"x" * (MOST_BYTES // part))])
    assert len(kept.all()) == part

"""What was acknowledged last is kept, for an ERROR that is about it: so many messages, and so many bytes."""

from __future__ import annotations

import pytest
from tests.stomp.test_stored_frames import arrived

from redelivery_stomp.recent_acknowledgements import MOST_BYTES, RECENT, RecentAcknowledgements


def test_the_oldest_batches_make_way() -> None:
    """As many messages are kept as batches of the engine have, and the last batch, however large it is."""
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
    """A list of large messages is not kept beside many others."""
    kept = RecentAcknowledgements()
    for _ in range(9):
        kept.add([arrived("artemis", [], b"x" * (MOST_BYTES // part))])
    assert len(kept.all()) == part

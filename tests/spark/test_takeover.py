"""Takeover: a runner stands still while another start takes the log; the rows of both are processed once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.needs import need

need("fsspec")

from tests.spark.query import readers_of
from tests.spark.test_object_store import both, meanwhile, stores

from redelivery_spark.wal.store import LogTaken

if TYPE_CHECKING:
    from redelivery.testing import ManualClock, MemoryBroker

__all__ = ["stores"]


def test_a_runner_that_stood_still_has_its_messages_processed_by_the_next(
    redelivery_broker: MemoryBroker, redelivery_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A runner that stood still publishes none of its messages, because the broker gave them to the new start."""
    for number in range(3):
        redelivery_broker.send("orders", f"good-{number}")
    old, new = both(redelivery_broker)
    with old, new:
        lane = old.start()._journal.lanes[1]

        def happens() -> None:
            new.start()
            readers_of(old.start()).source.close()
            new.drain()
            redelivery_clock.advance(5)

        meanwhile(monkeypatch, lane, happens)
        with pytest.raises(LogTaken):
            old.step()
        assert [each.rows for each in lane.after(0)] == []
        old.die()
        redelivery_clock.advance(6)
        new.drain()
    assert sorted(new.bodies()) == [f"good-{number}" for number in range(3)]


@pytest.mark.parametrize("when", ["published", "looks"])
def test_what_an_old_runner_has_published_just_before(
    redelivery_broker: MemoryBroker, redelivery_clock: ManualClock, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Rows that an old runner published and did not accept are redelivered to the new start, and recognised."""
    old, new = both(redelivery_broker)
    with old, new:
        old.start()
        for number in range(3):
            redelivery_broker.send("orders", f"good-{number}")
        lane = old.start()._journal.lanes[1]

        def happens() -> None:
            new.read_ahead()
            readers_of(old.start()).source.close()
            reader = readers_of(new.start()).reader
            while not reader._taken:
                reader.step(0.0)
            redelivery_clock.advance(1.1)

        meanwhile(monkeypatch, lane, happens)
        with pytest.raises(LogTaken):
            old.step()
        old.die()
        if when == "looks":
            redelivery_clock.advance(5)
        new.drain()
        report = new.start().report()
    assert sorted(new.bodies()) == [f"good-{number}" for number in range(3)]
    assert report is not None
    assert report["copies"] == 3
    assert redelivery_broker.depth("orders") == 0

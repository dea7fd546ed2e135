"""Lanes without a reader: an older start that had more readers can append to them for a moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.spark.query import readers_of
from tests.spark.stored import sent

from redelivery.testing import MemoryBroker
from redelivery_spark.stream.lanes import EACH, LONGEST
from redelivery_spark.wal.lane import Lane
from redelivery_spark.wal.segment_files import SegmentFacts, folder_of, stored_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.spark.query import Query

    from redelivery.core.delivery import Delivery
    from redelivery.testing import ManualClock


class Older:
    """Second reader of an older start, which does not know yet that another start has the log."""

    def __init__(self, query: Query) -> None:
        query.store.prepare(folder_of(2))
        self._lane = Lane(query.store, 2)

    def publish(self, found: Sequence[Delivery], wire: Mapping[str, str]) -> None:
        """Publish messages."""
        stored = [each.stored() for each in found]
        facts = SegmentFacts(1.0, "log", (wire,), connection="R.2.1-0")
        self._lane.publish(stored_table([head for head, _ in stored], [body for _, body in stored], facts))

    def append(self, *bodies: str) -> None:
        """Publish messages that no other reader has had."""
        with MemoryBroker() as broker:
            self.publish(*sent(broker, *bodies))


@pytest.fixture
def query(make_query: Callable[..., Query]) -> Query:
    """A query with one reader."""
    return make_query()


@pytest.fixture
def older(query: Query) -> Older:
    """The second reader of the start before it."""
    return Older(query)


@pytest.mark.parametrize("used", [True, False])
def test_what_an_older_start_appends_at_a_takeover_comes_into_a_batch(
    redelivery_clock: ManualClock, query: Query, older: Older, *, used: bool
) -> None:
    """A segment of an older start is in a batch within seconds, also in an unused lane."""
    if used:
        older.append("before")
    query.drain()
    older.append("late-1", "late-2")
    began = redelivery_clock.monotonic()
    while "late-2" not in query.bodies():
        query.step()
        assert redelivery_clock.monotonic() - began <= (EACH if used else LONGEST) + 1
    query.drain()
    assert query.bodies() == [*["before"] * used, "late-1", "late-2"]


def test_a_batch_that_takes_longer_than_these_seconds(
    redelivery_clock: ManualClock, query: Query, older: Older
) -> None:
    """The lanes are checked once after a long batch, and not again."""
    query.step()
    older.append("late")
    redelivery_clock.advance(100)
    query.drain()
    assert query.bodies() == ["late"]
    older.append("later")
    redelivery_clock.advance(100)
    query.drain()
    assert query.bodies() == ["late"]


def test_a_look_each_second_at_lanes_that_are_used(
    redelivery_clock: ManualClock, query: Query, older: Older, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Used lanes are checked each second, all others once: each check is a request to the store."""
    older.append("before")
    looks: list[int] = []
    look = Lane.look

    def seen(lane: Lane) -> bool:
        looks.append(lane.number)
        return look(lane)

    left = query.start()._left
    monkeypatch.setattr(Lane, "look", seen)
    for _ in range(40):
        left.look()
        redelivery_clock.advance(EACH / 2)
    assert looks == [*[2] * 9, *range(2, 32)]


@pytest.mark.parametrize("how", ["taken", "comes again"])
def test_what_an_older_start_has_not_accepted_is_no_second_row(
    redelivery_broker: MemoryBroker, redelivery_clock: ManualClock, query: Query, older: Older, how: str
) -> None:
    """A message that an older start published and did not accept is no second row when the broker redelivers it."""
    query.drain()
    redelivery_broker.send("orders", "late")
    reader = readers_of(query.start()).reader
    while not reader._taken:
        reader.step(0.0)
    older.publish(reader._taken, reader._wire)
    if how == "comes again":
        redelivery_broker.cut()
    redelivery_clock.advance(LONGEST)
    query.drain()
    assert query.bodies() == ["late"]
    assert redelivery_broker.depth("orders") == 0
    assert reader.copies == 1

"""Starts of a query without messages: their segments in lane 0, and the effect on batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.needs import need

need("fsspec")

from tests.spark.conftest import FAST
from tests.spark.query import Query, readers_of
from tests.spark.test_object_store import stores

from redelivery_spark.stream.coordinator import Coordinator
from redelivery_spark.wal.object_store import ObjectStore
from redelivery_spark.wal.store import LogTaken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.spark.query import Row

    from redelivery.testing import ManualClock, MemoryBroker

__all__ = ["stores"]


@pytest.fixture
def a_query(redelivery_broker: MemoryBroker) -> Iterator[Callable[[], Query]]:
    """Make queries whose logs have no lock; each is closed after the test."""
    made: list[Query] = []

    def make() -> Query:
        made.append(Query(redelivery_broker, "sound://bucket/log", uri=FAST))
        return made[-1]

    yield make
    for query in made:
        query.die()


def idle_starts(query: Query, count: int) -> None:
    """Start a query without a message, several times."""
    for _ in range(count):
        query.start().begin(query.planned)
        query.die()


def fails_first(row: Row) -> None:
    """Refuse the first delivery."""
    if row["delivery_count"] == 1:
        raise ValueError


def numbers(query: Query, lane: int = 0) -> list[int]:
    """Return the numbers of a lane's segments."""
    return [int(name[-18:-6]) for name in query.store.names(f"s{lane}")]


def test_starts_without_a_message_leave_two_segments(
    a_query: Callable[[], Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Starts without messages leave two segments; numbers continue, and a start reads only those two, each once."""
    query = a_query()
    idle_starts(query, 9)
    read, real = list[str](), ObjectStore.read

    def noted(self: ObjectStore, name: str) -> bytes | None:
        read.append(name)
        return real(self, name)

    monkeypatch.setattr(ObjectStore, "read", noted)
    idle_starts(query, 1)
    assert numbers(query) == [9, 10]
    assert sum(name.startswith("s0/") for name in read) == 2


def test_a_batch_that_names_numbers_which_are_gone_has_its_rows(
    a_query: Callable[[], Query], redelivery_broker: MemoryBroker
) -> None:
    """A batch that Spark planned before is replayed with the same rows, and a later batch follows it."""
    query = a_query()
    idle_starts(query, 4)
    redelivery_broker.send("orders", "one")
    query.plan()
    assert query.planned[0] == 5
    query.die()
    idle_starts(query, 3)
    assert numbers(query) == [7, 8]
    query.step(fails_first)
    query.drain(fails_first)
    assert query.bodies() == ["one"]
    assert query.committed[0] > 8
    assert query.start()._journal.state.void == 0


def test_rows_that_are_delivered_again_stay_behind_starts_without_any(
    a_query: Callable[[], Query], redelivery_broker: MemoryBroker, redelivery_clock: ManualClock
) -> None:
    """No segment is removed from the first one with rows on."""
    query = a_query()
    redelivery_broker.send("orders", "late")
    query.step(fails_first)
    query.plan()
    query.die()
    query.planned = dict(query.committed)
    idle_starts(query, 3)
    redelivery_clock.advance(3)
    query.start().begin(query.committed)
    query.start()._turn()
    (number,) = (each.number for each in query.start()._journal.lanes.redeliveries.after(0) if each.rows)
    query.die()
    idle_starts(query, 4)
    assert numbers(query)[-5:] == list(range(number, number + 5))
    query.drain(fails_first)
    assert query.bodies() == ["late"]


def test_an_old_runner_that_finds_a_number_free_again_delivers_nothing(
    a_query: Callable[[], Query], redelivery_broker: MemoryBroker, redelivery_clock: ManualClock
) -> None:
    """A later start does not read segments of a runner that stood still over several starts."""
    redelivery_broker.send("orders", "late")
    old, new = a_query(), a_query()
    old.step(fails_first)
    old.step(fails_first)
    new.planned, new.committed, new.batch = old.planned, old.committed, old.batch
    idle_starts(new, 4)
    assert old.start()._journal.lanes.redeliveries.last + 1 not in numbers(new)
    redelivery_clock.advance(3)
    readers_of(old.start()).reader._check = lambda: None
    with pytest.raises(LogTaken):
        old.plan()
    assert old.start()._journal.lanes.redeliveries.last in numbers(new)
    old.die()
    new.drain(fails_first)
    assert new.bodies() == ["late"]
    assert isinstance(new.start(), Coordinator)

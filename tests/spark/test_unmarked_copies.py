"""A message whose acceptance was lost is handled once, also if the broker does not mark redeliveries."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import pytest
from tests.spark.conftest import no_marks

from redelivery_memory.messages import MemoryDelivery

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.spark.query import Query

    from redelivery.testing import ManualClock, MemoryBroker


@pytest.fixture(params=[True, False], ids=["marks", "no marks"])
def marks(request: pytest.FixtureRequest) -> Iterator[bool]:
    """True if the broker marks redeliveries; False: a broker that does not."""
    with nullcontext() if request.param else no_marks():
        yield request.param


def unaccepted(broker: MemoryBroker, make_query: Callable[..., Query]) -> Query:
    """Return a query that has processed a message whose acceptance the broker has not read."""
    broker.send("orders", "good")
    broker.drop_accepts(1)
    query = make_query()
    query.step()
    query.step()
    return query


@pytest.mark.usefixtures("marks")
@pytest.mark.parametrize("end", ["die", "cut"])
@pytest.mark.parametrize("settled", [True, False])
def test_a_lost_acceptance(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], end: str, *, settled: bool
) -> None:
    """A connection that ends between an acceptance and the broker's reading of it makes no second row."""
    redelivery_broker.send("orders", "good")
    redelivery_broker.drop_accepts(1)
    query = make_query()
    query.step()
    if settled:
        query.step()
    query.die() if end == "die" else redelivery_broker.cut()
    assert redelivery_broker.depth("orders") == 1
    query.drain()
    assert query.bodies() == ["good"]
    assert redelivery_broker.depth("orders") == 0
    report = query.start().report()
    assert report is not None
    assert report["copies"] == 1


@pytest.mark.usefixtures("marks")
def test_two_deaths_before_a_copy_has_come(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query]
) -> None:
    """The first start after a death brings nothing and ends: its segments stay for the second."""
    query = unaccepted(redelivery_broker, make_query)
    query.die()
    redelivery_broker.drop_accepts(1)
    query.start().begin(query.committed)
    query.step()
    query.die()
    assert redelivery_broker.depth("orders") == 1
    query.drain()
    assert query.bodies() == ["good"]
    assert redelivery_broker.depth("orders") == 0


@pytest.mark.usefixtures("marks")
def test_a_copy_of_a_row_that_waits(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query]
) -> None:
    """A duplicate of a row that waits is accepted, and charges nothing."""
    redelivery_broker.send("orders", "late")
    redelivery_broker.drop_accepts(1)
    query = make_query()

    def handler(row: dict[str, int]) -> None:
        if row["delivery_count"] == 1:
            raise ValueError

    query.step(handler)
    query.step(handler)
    query.die()
    query.drain(handler)
    assert query.bodies() == ["late"]
    assert query.output[max(query.output)][0]["delivery_count"] == 2


def test_messages_without_an_id_are_rows_each_time(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages without an id are rows each time, with different names."""
    monkeypatch.setattr(MemoryDelivery, "identity", property(lambda _: None))
    monkeypatch.setattr(MemoryDelivery, "key", property(lambda _: None))
    query = make_query()
    for _ in range(2):
        redelivery_broker.send("orders", "same")
        query.drain()
        query.die()
    rows = [row for rows in query.output.values() for row in rows]
    log = query.start().log
    assert [row["message_id"] for row in rows] == [f"{log[:8]}/{row['_place']}" for row in rows]
    assert len({row["message_id"] for row in rows}) == 2


def test_segments_in_doubt_go_when_the_doubt_is_over(
    redelivery_broker: MemoryBroker,
    make_query: Callable[..., Query],
    redelivery_clock: ManualClock,
    segments_of: Callable[[int], None],
) -> None:
    """Two windows of settled segments stay; after a cut the older ones are removed, but not at once."""
    segments_of(1)
    query = make_query(uri="redelivery.credit=2", maxRowsPerTrigger=1)
    for number in range(9):
        redelivery_broker.send("orders", f"good-{number}")
    query.drain()
    names = query.store.names("s1")
    assert [name[-7:-6] for name in names] == ["6", "7", "8", "9"]
    redelivery_broker.cut()
    redelivery_broker.send("orders", "after the cut")
    query.drain()
    assert query.store.names("s1")[:4] == names
    redelivery_clock.advance(61)
    query.step()
    redelivery_clock.advance(1)
    query.step()
    redelivery_broker.send("orders", "later")
    query.drain()
    assert not set(names) & set(query.store.names("s1"))
    assert len(query.bodies()) == 11


def test_an_outage_is_no_empty_destination(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], redelivery_clock: ManualClock
) -> None:
    """A connection that is down for longer than a doubt lasts does not prove that no duplicate will arrive."""
    query = unaccepted(redelivery_broker, make_query)
    redelivery_broker.cut()
    # The duplicate's acceptance is lost, too.
    redelivery_broker.drop_accepts(1)
    query.step()
    query.step()
    redelivery_broker.refuse_connections()
    redelivery_broker.cut()
    for _ in range(2):
        redelivery_clock.advance(70)
        query.step()
    redelivery_broker.accept_connections()
    redelivery_clock.advance(70)
    query.drain()
    assert query.bodies() == ["good"]
    assert redelivery_broker.depth("orders") == 0

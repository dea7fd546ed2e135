"""AvailableNow: a query processes the messages that are there, and ends; not earlier, and whatever fails."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from tests.spark.conftest import HOURS
from tests.spark.query import Query, fails_bad, readers_of

from redelivery.errors import TransportError
from redelivery_memory.messages import MemoryDelivery
from redelivery_spark.stream.trigger_size import AvailableNow

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery.testing import ManualClock, MemoryBroker

FOR_EVER = "jms.redeliveryPolicy.maximumRedeliveries=-1&jms.redeliveryPolicy.redeliveryDelay=20000"
BEFORE = datetime(2026, 1, 1, tzinfo=UTC)


def run(query: Query, clock: ManualClock) -> float:
    """Run a query to its end; return how many seconds the last call took."""
    query.start().available_now()
    while True:
        began = clock.monotonic()
        if query.step(fails_bad) is None:
            return clock.monotonic() - began


def test_a_process_that_stands_still_does_not_end_a_query(redelivery_clock: ManualClock) -> None:
    """A silence counts by looks: messages may have arrived while the process stood still."""
    available = AvailableNow(redelivery_clock)
    for _ in range(4):
        redelivery_clock.advance(60)
        assert not available.exhausted
        available.saw([], 60.0)
    assert available.exhausted


def test_a_dead_letter_destination_that_refuses(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], redelivery_clock: ManualClock
) -> None:
    """A query ends although the dead-letter queue refuses, and the next run sends the dead letter."""
    query = make_query()
    redelivery_broker.refuse_sends(10**9)
    redelivery_broker.send("orders", "bad-1")
    assert run(query, redelivery_clock) < 100
    query.die()
    redelivery_broker.refuse_sends(0)
    query.drain(fails_bad)
    assert len(redelivery_broker.dead_letters()) == 1


def test_redeliveries_in_hours(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], redelivery_clock: ManualClock
) -> None:
    """A query does not wait for redeliveries in hours, also if they leave no room for other messages."""
    query = make_query(uri=HOURS + "&redelivery.maxParked=1", maxRowsPerTrigger=5)
    for number in range(7):
        redelivery_broker.send("orders", f"bad-{number}")
    assert run(query, redelivery_clock) < 100


def test_a_message_that_is_redelivered_for_ever(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], redelivery_clock: ManualClock
) -> None:
    """A query ends a minute after the last message that was there, however soon the next redelivery is due."""
    query = make_query(uri=FOR_EVER)
    redelivery_broker.send("orders", "bad")
    began = redelivery_clock.monotonic()
    run(query, redelivery_clock)
    assert 30 <= redelivery_clock.monotonic() - began < 100


@pytest.mark.usefixtures("own_ids")
def test_a_producer_that_never_stops(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], redelivery_clock: ManualClock
) -> None:
    """A query ends also if messages have no send time, once there is a pause between them."""
    sent: list[str] = []

    def send() -> None:
        sent.append(redelivery_broker.send("orders", "good"))
        redelivery_clock.call_later(1.3, send)

    query = make_query(maxRowsPerTrigger=10)
    query.start().available_now()
    send()
    while query.step() is not None:
        pass
    assert len(sent) < 10


@pytest.mark.usefixtures("own_ids")
def test_a_producer_without_a_pause(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], redelivery_clock: ManualClock
) -> None:
    """A query whose messages have no send time and no pause ends after ten minutes."""
    query = make_query(maxRowsPerTrigger=2)
    query.start().available_now()
    for number in range(100):
        redelivery_broker.send("orders", f"good-{number}")
        redelivery_broker.send("orders", f"good-{number}")
        redelivery_clock.advance(20)
        if query.step() is None:
            break
    assert 25 < number < 40


def test_a_clock_that_is_ahead(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One message from the future does not end a query."""
    for number in range(50):
        redelivery_broker.send("orders", f"good-{number}")
    monkeypatch.setattr(
        MemoryDelivery,
        "timestamp",
        property(lambda d: datetime(2100, 1, 1, tzinfo=UTC) if d.kept.body == b"good-3" else BEFORE),
    )
    query = make_query(maxRowsPerTrigger=10)
    query.start().available_now()
    while query.step() is not None:
        pass
    assert len(query.bodies()) == 50


@pytest.mark.parametrize("wait", [0, 0.5])
def test_a_reconnect(
    redelivery_broker: MemoryBroker,
    make_query: Callable[..., Query],
    redelivery_clock: ManualClock,
    segments_of: Callable[[int], None],
    wait: float,
) -> None:
    """A connection that is down does not count as an empty queue."""
    segments_of(5)
    for number in range(20):
        redelivery_broker.send("orders", f"good-{number}")
    query = make_query(maxRowsPerTrigger=5, maxTriggerDelay=f"{wait * 1000:.0f}ms")
    query.start().available_now()
    query.step()
    redelivery_broker.refuse_connections()
    redelivery_broker.cut()
    redelivery_clock.call_later(5, redelivery_broker.accept_connections)
    while query.step() is not None:
        pass
    assert sorted(query.bodies()) == sorted(f"good-{number}" for number in range(20))


def test_a_broker_that_is_down(redelivery_broker: MemoryBroker, make_query: Callable[..., Query]) -> None:
    """A query fails after a while if the broker is down."""
    redelivery_broker.send("orders", "good")
    query = make_query()
    query.start().available_now()
    redelivery_broker.refuse_connections()
    redelivery_broker.cut()
    with pytest.raises(TransportError, match="no connection for 90 s"):
        query.step()


def test_what_is_in_the_log_is_processed_too(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query]
) -> None:
    """A run processes the rows that an earlier run read ahead; the broker need not have any more messages."""
    for number in range(5):
        redelivery_broker.send("orders", f"good-{number}")
    query = make_query()
    query.read_ahead()
    assert redelivery_broker.depth("orders") == 0
    query.die()
    query.start().available_now()
    while query.step() is not None:
        pass
    assert len(query.bodies()) == 5


def test_a_redelivery_that_is_near_is_waited_for(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], redelivery_clock: ManualClock
) -> None:
    """A redelivery that is due soon belongs to this run: at its end all messages of its beginning are processed."""
    redelivery_broker.send("orders", "flaky")
    query = make_query()
    run(query, redelivery_clock)
    assert query.bodies() == ["flaky"]


def test_what_is_sent_later_is_of_the_next_run(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], redelivery_clock: ManualClock
) -> None:
    """Messages with a later send time stay on the broker, with those behind them."""
    redelivery_broker.send("orders", "early")
    query = make_query()
    query.start().available_now()
    query.step()
    redelivery_clock.advance(5)
    for number in range(3):
        redelivery_broker.send("orders", f"later-{number}")
    while query.step() is not None:
        redelivery_broker.send("orders", "more")
    assert "more" not in query.bodies()
    left = redelivery_broker.depth("orders") + len(query.bodies())
    query.die()
    query.drain()
    assert len(query.bodies()) == left


def test_short_runs_leave_nothing_behind(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], redelivery_clock: ManualClock
) -> None:
    """A run every five minutes keeps only the segments of the last runs, and remembers no other rows."""
    query = make_query()
    for number in range(12):
        for part in "abc":
            redelivery_broker.send("orders", f"good-{number}{part}")
        run(query, redelivery_clock)
        assert len(query.store.names("s1")) <= 4
        query.die()
        redelivery_clock.advance(300)
    query.read_ahead()
    assert len(readers_of(query.start()).reader._doubt._known) <= 6
    assert len(query.bodies()) == len(set(query.bodies())) == 36


def test_a_copy_that_comes_in_a_run_of_the_next_day(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], redelivery_clock: ManualClock
) -> None:
    """A duplicate is recognised in a run of the next day: the broker had not read the acceptance."""
    redelivery_broker.send("orders", "good-1")
    redelivery_broker.drop_accepts(1)
    query = make_query()
    query.start().available_now()
    query.step()
    query.die()
    redelivery_clock.advance(86_400)
    redelivery_broker.send("orders", "good-2")
    run(query, redelivery_clock)
    assert query.bodies() == ["good-1", "good-2"]
    assert redelivery_broker.depth("orders") == 0

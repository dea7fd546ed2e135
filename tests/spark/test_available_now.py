"""A query that processes what is there, and ends: not before, and whatever goes wrong."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from tests.spark.conftest import AT_ONCE, HOURS
from tests.spark.query import Query, dead_bodies, fails_bad

import redelivery
from redelivery.errors import TransportError
from redelivery_memory.messages import MemoryDelivery

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery.testing import ManualClock, MemoryBroker

BEFORE = datetime(2026, 1, 1, tzinfo=UTC)


def run(query: Query, clock: ManualClock) -> float:
    """Run it to its end; return how many seconds the last call took."""
    query.start().available_now()
    while True:
        began = clock.monotonic()
        if query.step(fails_bad) is None:
            return clock.monotonic() - began


def test_a_dead_letter_destination_that_refuses(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], redelivery_clock: ManualClock
) -> None:
    """It ends, and the next run goes on with the dead letter."""
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
    """It does not wait for them, also where they leave no room for what else is there."""
    query = make_query(uri=HOURS + "&redelivery.maxParked=1", maxMessagesPerTrigger=5)
    for number in range(7):
        redelivery_broker.send("orders", f"bad-{number}")
    assert run(query, redelivery_clock) < 100


@pytest.mark.usefixtures("own_ids")
def test_a_producer_that_never_stops(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query]
) -> None:
    """It ends also where messages do not tell when they were sent, if there is a pause between them."""
    query = make_query(maxMessagesPerTrigger=10)
    query.start().available_now()
    for number in range(300):
        redelivery_broker.send("orders", f"good-{number}")
        if query.step() is None:
            break
    assert number < 10


@pytest.mark.usefixtures("own_ids")
def test_a_producer_without_a_pause(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], redelivery_clock: ManualClock
) -> None:
    """It ends after ten minutes."""
    query = make_query(maxMessagesPerTrigger=2)
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
    """One message from the future does not end it."""
    for number in range(50):
        redelivery_broker.send("orders", f"good-{number}")
    monkeypatch.setattr(
        MemoryDelivery,
        "timestamp",
        property(lambda d: datetime(2100, 1, 1, tzinfo=UTC) if d.kept.body == b"good-3" else BEFORE),
    )
    query = make_query(maxMessagesPerTrigger=10)
    query.start().available_now()
    while query.step() is not None:
        pass
    assert len(query.bodies()) == 50


@pytest.mark.parametrize("wait", [0, 500])
def test_a_reconnect(
    redelivery_broker: MemoryBroker,
    make_query: Callable[..., Query],
    redelivery_clock: ManualClock,
    wait: int,
) -> None:
    """An empty hand because the connection is down is no empty queue."""
    for number in range(20):
        redelivery_broker.send("orders", f"good-{number}")
    query = make_query(maxMessagesPerTrigger=5, maxWait=wait)
    query.start().available_now()
    query.step()
    redelivery_broker.refuse_connections()
    redelivery_broker.cut()
    redelivery_clock.call_later(5, redelivery_broker.accept_connections)
    while query.step() is not None:
        pass
    assert sorted(set(query.bodies())) == sorted(f"good-{number}" for number in range(20))


def test_a_broker_that_is_down(redelivery_broker: MemoryBroker, make_query: Callable[..., Query]) -> None:
    """It does not end well: that is said after a while."""
    redelivery_broker.send("orders", "good")
    query = make_query()
    query.start().available_now()
    redelivery_broker.refuse_connections()
    redelivery_broker.cut()
    with pytest.raises(TransportError, match="no connection for 90 s"):
        query.step()


def test_a_message_that_does_not_come_again(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], redelivery_clock: ManualClock
) -> None:
    """A run that ends by itself waits for it for long enough to send a copy of its row instead."""
    query = make_query(ack="commit", uri=AT_ONCE)
    redelivery_broker.send("orders", "bad-1")
    query.step(fails_bad)
    query.die()
    with redelivery.connect(redelivery_broker.uri) as connection, connection.consumer("orders") as consumer:
        message = consumer.receive(timeout=60)
        assert message is not None
        message.accept()
    assert run(query, redelivery_clock) < 100
    assert dead_bodies(redelivery_broker) == [b"bad-1"]

"""A refusal of a consumer after its first success is a passing state, as of a node that restarts."""

from __future__ import annotations

import itertools
import logging
from typing import TYPE_CHECKING

import pytest
from tests.driver.twins import body_of, eventually

import redelivery
from redelivery import AdapterError
from redelivery.events import Connected, ConsumerRefused
from redelivery.testing import MemoryBroker

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.driver.twins import Twin

    from redelivery.events import Event
    from redelivery.testing import ManualClock


def refusal(text: str, passes: bool | None) -> Callable[[], AdapterError]:
    return lambda: AdapterError(text, passes=passes)


@pytest.mark.parametrize("passes", [True, None], ids=["known", "unknown"])
def test_a_refused_consumer_is_subscribed_again(
    twin: Twin, caplog: pytest.LogCaptureFixture, passes: bool | None
) -> None:
    """A consumer that is refused after a reconnect waits, says so once, and goes on when the broker takes it."""
    caplog.set_level(logging.WARNING, "redelivery")
    connection = twin.connect()
    consumer = twin.call(connection.consumer("orders"))
    twin.broker.send("orders", "a")
    twin.receive(consumer).fail()
    twin.broker.refuse_consumers(error=refusal("a node restarts", passes))
    twin.broker.cut()
    twin.advance(100)
    health = connection.health()
    assert (health.live, health.ready, health.consumers[0].state) == (True, False, "waiting for the broker")
    assert health.consumers[0].refusal == "AdapterError: a node restarts"
    assert any("a node restarts" in reason for reason in health.reasons)
    twin.broker.accept_consumers()
    message = twin.receive(consumer, 31)
    assert (body_of(message), message.redelivery_count) == ("a", 1)
    assert connection.health().consumers[0].refusal is None
    waits = [each for each in caplog.messages if "waits for the broker" in each]
    assert waits == [
        "queue://orders: the consumer waits for the broker, which refuses it for now: a node restarts"
    ]
    assert [each for each in caplog.messages if "serves the consumer again" in each]
    assert len(caplog.messages) <= 6, caplog.messages


def test_a_refusal_that_stays_stops_the_consumer(twin: Twin) -> None:
    """A consumer whose right was taken away stops with the error of the broker."""
    connection = twin.connect()
    consumer = twin.call(connection.consumer("orders"))
    twin.broker.refuse_consumers(error=refusal("no right to read", passes=False))
    twin.broker.cut()
    twin.advance(1)
    with pytest.raises(AdapterError, match="no right to read"):
        twin.receive(consumer)


def test_other_consumers_go_on_without_it(twin: Twin) -> None:
    """A consumer whose queue is down is tried with growing delays; the others keep their connection meanwhile."""
    seen: list[Event] = []
    connection = twin.connect(observers=[seen.append])
    down, well = twin.call(connection.consumer("down")), twin.call(connection.consumer("well"))
    twin.broker.refuse_consumers("down")
    twin.broker.cut()
    for number in range(60):
        twin.advance(1)
        twin.broker.send("well", str(number))
        message = twin.receive(well)
        assert body_of(message) == str(number)
        message.accept()
    assert [event.again for event in seen if isinstance(event, Connected)] == [False, True]
    # After 0, 1, 3, 7, 15 and 31 s.
    assert [event.times for event in seen if isinstance(event, ConsumerRefused)] == [1, 2, 3, 4, 5, 6]
    states = {each.destination: each.state for each in connection.health().consumers}
    assert states == {"queue://down": "waiting for the broker", "queue://well": "consuming"}
    twin.broker.accept_consumers()
    twin.broker.send("down", "late")
    assert body_of(twin.receive(down, 31)) == "late"


def test_a_node_that_serves_no_consumer_is_left(twin: Twin, redelivery_clock: ManualClock) -> None:
    """If the broker refuses all consumers of a connection, the next address is tried; the others there go on."""
    with MemoryBroker(clock=redelivery_clock) as other:
        uri = f"failover:({twin.broker.uri},{other.uri})?randomize=false"
        connection = twin.connect(uri=uri)
        one, two = twin.call(connection.consumer("one")), twin.call(connection.consumer("two"))
        other.refuse_consumers()
        twin.broker.refuse_consumers("one")
        twin.broker.cut()
        twin.advance(1)
        assert (twin.broker.connections, other.connections) == (1, 0)
        assert connection.health().connection.reconnects == 2
        twin.broker.send("two", "a")
        assert body_of(twin.receive(two, 1)) == "a"
        twin.broker.accept_consumers()
        twin.broker.send("one", "b")
        assert body_of(twin.receive(one, 5)) == "b"


def test_refusals_have_the_delays_of_failover(twin: Twin) -> None:
    """A broker that takes the connection and refuses its only consumer is not asked in a hot loop."""
    seen: list[Event] = []
    connection = twin.connect(
        uri=f"failover:({twin.broker.uri})?maxReconnectDelay=5000", observers=[seen.append]
    )
    consumer = twin.call(connection.consumer("orders"))
    twin.broker.refuse_consumers()
    twin.broker.cut()
    twin.advance(60)
    # 10 ms, doubled up to 5 s.
    assert 10 <= sum(isinstance(event, ConsumerRefused) for event in seen) <= 24
    twin.broker.accept_consumers()
    twin.broker.send("orders", "a")
    assert body_of(twin.receive(consumer, 5)) == "a"


def test_the_number_of_refusals_can_be_limited(twin: Twin) -> None:
    """After `maxReconnectAttempts` refusals in a row the consumer stops with the last one."""
    connection = twin.connect(uri=f"failover:({twin.broker.uri})?maxReconnectAttempts=3")
    consumer = twin.call(connection.consumer("orders"))
    twin.broker.refuse_consumers()
    twin.broker.cut()
    twin.advance(60)
    with pytest.raises(AdapterError, match="refuse_consumers"):
        twin.receive(consumer)


def test_a_closed_consumer_is_not_subscribed_again(twin: Twin) -> None:
    """A consumer that is closed while the broker refuses it is forgotten."""
    connection = twin.connect()
    consumer = twin.call(connection.consumer("orders"))
    twin.call(connection.consumer("others"))
    twin.broker.refuse_consumers("orders")
    twin.broker.cut()
    twin.advance(1)
    twin.call(consumer.close())
    twin.broker.accept_consumers()
    twin.broker.send("orders", "a")
    twin.advance(60)
    assert not twin.broker.messages("orders")[0].delivered


def test_a_first_consumer_is_refused_at_once(twin: Twin) -> None:
    """Without patience at the start a refusal is an error of the call, as known from the log-in."""
    connection = twin.connect()
    twin.broker.refuse_consumers()
    with pytest.raises(redelivery.RedeliveryError, match="refuse_consumers"):
        twin.call(connection.consumer("orders"))


def test_a_patient_start_waits_for_the_broker(twin: Twin) -> None:
    """With `startupMaxReconnectAttempts=-1` a start waits for a broker that refuses its consumer for now."""
    connection = twin.connect(uri=f"failover:({twin.broker.uri})?startupMaxReconnectAttempts=-1")
    twin.broker.refuse_consumers()
    got: list[str | None] = []

    def handle(message: redelivery.Message) -> None:
        got.append(message.text)

    twin.clock.call_later(90, twin.broker.accept_consumers)
    connection.listen("orders", twin.handler(handle))
    twin.broker.send("orders", "a")
    twin.call(connection.start(), over=130)
    eventually(twin, lambda: got)


def test_a_send_that_a_restarting_node_refuses_can_be_repeated(twin: Twin) -> None:
    """A refusal that passes is a TransportError of its own type for a send, and says that nothing was sent."""
    connection = twin.connect()
    twin.broker.refuse_sends(error=refusal("process is stopped by supervisor", passes=True))
    with pytest.raises(
        redelivery.BrokerUnavailable, match="stopped by supervisor; the broker refuses it for now"
    ):
        twin.call(connection.send("orders", "a"))
    twin.call(connection.send("orders", "a"))
    assert twin.broker.depth("orders") == 1


def test_a_send_at_a_lost_connection_says_that_it_may_have_arrived(twin: Twin) -> None:
    """A send whose connection is lost before the confirmation says that the message may have been sent."""
    connection = twin.connect()
    twin.broker.stall_confirmations()
    twin.clock.call_later(1, twin.broker.cut)
    with pytest.raises(redelivery.TransportError, match="the message to queue://orders may have been sent"):
        twin.call(connection.send("orders", "a"), over=2)


def test_a_refusal_that_cuts_the_others_is_seldom(twin: Twin) -> None:
    """Where a refusal ends the connection, as over STOMP, the consumer is tried after 30 s, 60 s, and so on."""
    times: list[float] = []

    def observe(event: Event) -> None:
        if isinstance(event, ConsumerRefused):
            times.append(round(twin.clock.monotonic(), 1))
            twin.clock.call_later(0.1, twin.broker.cut)

    connection = twin.connect(observers=[observe])
    down, _ = twin.call(connection.consumer("down")), twin.call(connection.consumer("well"))
    twin.broker.refuse_consumers("down")
    twin.broker.cut()
    for _ in range(100):
        twin.advance(7)
    gaps = [later - before for before, later in itertools.pairwise(times)]
    assert len(gaps) == 4
    assert gaps == pytest.approx([30, 60, 120, 240], abs=2)
    twin.broker.accept_consumers()
    twin.broker.send("down", "late")
    assert body_of(twin.receive(down, 301)) == "late"


def test_producers_keep_the_only_address(twin: Twin) -> None:
    """With one address a connection whose only consumer is refused stays: it serves the producers."""
    connection = twin.connect()
    twin.call(connection.consumer("orders"))
    twin.broker.refuse_consumers()
    twin.broker.cut()
    for number in range(60):
        twin.advance(1)
        twin.call(connection.send("others", str(number)))
    assert connection.health().connection.reconnects == 1


def test_a_consumer_that_is_served_late_begins_late(twin: Twin) -> None:
    """The age of a consumer's connection counts from when it was served: its redeliveries come soon after that."""
    connection = twin.connect()
    twin.call(connection.consumer("orders"))
    twin.call(connection.consumer("others"))
    twin.broker.refuse_consumers("orders")
    twin.broker.cut()
    twin.advance(70)
    twin.broker.accept_consumers()
    twin.advance(30)
    since = {each.subscribe.destination: each.engine.state.since for each in connection._dispatchers}
    now = twin.clock.monotonic()
    assert now - since["queue://others"] == pytest.approx(100, abs=1)
    assert now - since["queue://orders"] < 31


@pytest.mark.parametrize("asked", [False, True], ids=["nobody asks", "health is asked each second"])
def test_a_round_over_all_addresses_has_the_delay_of_failover(
    twin: Twin, redelivery_clock: ManualClock, asked: bool
) -> None:
    """Where all of three addresses refuse the only consumer, each round has its delay, also if health is read."""
    with MemoryBroker(clock=redelivery_clock) as two, MemoryBroker(clock=redelivery_clock) as three:
        uri = f"failover:({twin.broker.uri},{two.uri},{three.uri})?randomize=false"
        connection = twin.connect(uri=uri)
        consumer = twin.call(connection.consumer("orders"))
        for broker in (twin.broker, two, three):
            broker.refuse_consumers()
        twin.broker.cut()
        for _ in range(600):
            twin.advance(1)
            if asked:
                connection.health()
        # After 1, 2, 4, 8, 16 and then each 30 s a round of two changes; the first one follows the cut.
        assert 44 <= connection.health().connection.reconnects <= 52
        three.accept_consumers()
        three.send("orders", "a")
        assert body_of(twin.receive(consumer, 31)) == "a"


def test_the_limit_of_refusals_is_of_rounds_over_all_addresses(
    twin: Twin, redelivery_clock: ManualClock
) -> None:
    """With three addresses and `maxReconnectAttempts=2` a consumer outlives two rounds, and ends with the third."""
    seen: list[Event] = []
    with MemoryBroker(clock=redelivery_clock) as two, MemoryBroker(clock=redelivery_clock) as three:
        uri = f"failover:({twin.broker.uri},{two.uri},{three.uri})?randomize=false&maxReconnectAttempts=2"
        connection = twin.connect(uri=uri, observers=[seen.append])
        consumer = twin.call(connection.consumer("orders"))
        for broker in (twin.broker, two, three):
            broker.refuse_consumers()
        twin.broker.cut()
        twin.advance(60)
        with pytest.raises(AdapterError, match="refuse_consumers"):
            twin.receive(consumer)
    # The ninth one ends it.
    assert [event.times for event in seen if isinstance(event, ConsumerRefused)] == [1, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("apart", [0.0, 0.4], ids=["together", "apart"])
def test_consumers_that_are_due_apart_have_the_delays_of_failover(
    twin: Twin, redelivery_clock: ManualClock, apart: float
) -> None:
    """Two refused consumers, due at different times, neither hurry each other's rounds nor outlive their limit."""
    with MemoryBroker(clock=redelivery_clock) as other:
        connection = twin.connect(uri=f"failover:({twin.broker.uri},{other.uri})?randomize=false")
        twin.call(connection.consumer("one"))
        twin.call(connection.consumer("two"))
        other.refuse_consumers()
        twin.broker.refuse_consumers("one")
        twin.broker.cut()
        twin.advance(apart)
        twin.broker.refuse_consumers()
        twin.broker.cut()
        for _ in range(600):
            twin.advance(1)
            connection.health()
        assert 20 <= connection.health().connection.reconnects <= 60

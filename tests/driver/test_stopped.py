"""Consumers that stop with an error: other consumers get their messages."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.core.model import Arrival, Letter

import redelivery
import redelivery_memory.adapter
from redelivery import AdapterError
from redelivery.adapter import Subscribed
from redelivery.core.commands import Stop
from redelivery.core.events import Arrived

if TYPE_CHECKING:
    from tests.driver.twins import Twin

STRICT = "?redelivery.maximumSetAside=0"


@pytest.fixture(autouse=True)
def no_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take poison acknowledgement and release from the broker, as Artemis over STOMP has neither."""
    able = replace(
        redelivery_memory.CAPABILITIES, poison_persistent=False, poison_non_persistent=False, release=False
    )
    monkeypatch.setattr(redelivery_memory.adapter, "CAPABILITIES", able)


def delivered(twin: Twin) -> list[str]:
    """Return the bodies that consumers have unsettled."""
    return [held.text for held in twin.broker.messages("orders") if held.delivered]


def poisoned(twin: Twin, consumer: object) -> None:
    """Poison the next message, whose body is incomplete: it cannot be copied, and its consumer stops."""
    message = twin.receive(consumer)
    assert message.text == "part"
    message.poison("bad")


def test_what_it_has_prefetched_goes_to_others(twin: Twin) -> None:
    """The broker takes back prefetched messages of a stopped consumer at once, before the application closes it."""
    first, second = twin.connect(STRICT), twin.connect(STRICT)
    consumer = twin.call(first.consumer("orders"))
    twin.broker.send("orders", "part", body_kind="partial")
    for body in ("a", "b"):
        twin.broker.send("orders", body)
    other = twin.call(second.consumer("orders"))
    poisoned(twin, consumer)
    twin.advance(0)
    assert [twin.receive(other).text for _ in range(3)] == ["part", "a", "b"]
    with pytest.raises(AdapterError, match="over AMQP"):
        twin.receive(consumer)
    assert (first._dispatchers, first._driver.dispatchers) == ([], {})
    twin.call(consumer.close())


def test_what_runs_is_waited_for(twin: Twin) -> None:
    """Messages that the application has are settled as usual, and no other consumer gets them meanwhile."""
    connection = twin.connect(STRICT)
    consumer = twin.call(connection.consumer("orders"))
    twin.broker.send("orders", "a")
    running = twin.receive(consumer)
    twin.broker.send("orders", "part", body_kind="partial")
    twin.broker.send("orders", "b")
    poisoned(twin, consumer)
    twin.advance(0)
    assert delivered(twin) == ["a", "part", "b"]
    assert running.accept() is True
    twin.advance(0)
    assert [held.text for held in twin.broker.messages("orders")] == ["part", "b"]
    assert delivered(twin) == []
    assert connection.report() == redelivery.Report(accepted=1)


def test_a_dead_letter_in_doubt_is_waited_for(twin: Twin) -> None:
    """A stopped consumer waits for the confirmation of a copy: else its message would be handled again."""
    connection = twin.connect(STRICT)
    consumer = twin.call(connection.consumer("orders"))
    twin.broker.stall_confirmations()
    twin.broker.send("orders", "doubtful")
    twin.receive(consumer).poison("bad")
    twin.broker.send("orders", "part", body_kind="partial")
    twin.broker.send("orders", "b")
    poisoned(twin, consumer)
    twin.advance(0)
    assert delivered(twin) == ["part", "b"]  # the broker has the copy, but has not confirmed it
    twin.broker.resume_confirmations()
    twin.advance(0)
    assert delivered(twin) == []
    assert [letter.text for letter in twin.broker.dead_letters()] == ["doubtful"]
    assert connection.report().poisoned == 1


def test_the_next_consumer_knows_the_verdict(twin: Twin) -> None:
    """The message that stopped a consumer stops the next one on the connection, without being handled again."""
    connection = twin.connect(STRICT)
    consumer = twin.call(connection.consumer("orders"))
    twin.broker.send("orders", "part", body_kind="partial")
    poisoned(twin, consumer)
    twin.advance(0)
    second = twin.call(connection.consumer("orders"))
    with pytest.raises(AdapterError, match="over AMQP"):
        twin.receive(second)
    assert twin.broker.depth("orders") == 1


def test_workers_end_and_nothing_stays(twin: Twin) -> None:
    """A listener that stops ends `run` with its error; its message is released while the connection is up."""
    connection = twin.connect(STRICT)
    twin.broker.send("orders", "part", body_kind="partial")

    def handle(_: object) -> None:
        raise redelivery.Poison("bad")

    connection.listen("orders", twin.handler(handle), workers=2)
    with pytest.raises(AdapterError, match="over AMQP"):
        twin.run(connection)
    twin.advance(0)
    assert connection.connected
    assert delivered(twin) == []


def test_what_the_broker_ends_is_unsubscribed(twin: Twin) -> None:
    """A subscription that the broker refuses in part, or later, is ended there."""
    connection = twin.connect(STRICT)
    consumer = twin.call(connection.consumer("orders"))
    twin.broker.send("orders", "a")
    assert delivered(twin) == ["a"]
    number = consumer._dispatcher.subscribe.consumer
    connection._driver._sink(
        Subscribed(number, AdapterError("its dead letters cannot be sent", passes=False))
    )
    twin.advance(0)
    assert delivered(twin) == []
    with pytest.raises(AdapterError, match="cannot be sent"):
        twin.receive(consumer)


def test_an_outage_does_not_keep_it(twin: Twin) -> None:
    """A consumer that stops while the connection is down is removed, too."""
    connection = twin.connect(STRICT)
    consumer = twin.call(connection.consumer("orders"))
    bad = twin.broker.send("orders", "a")
    for _ in range(2):
        twin.broker.cut(suspect=bad)
        twin.advance(1)
    twin.broker.refuse_connections()
    twin.broker.cut(suspect=bad)
    twin.advance(1)
    with pytest.raises(AdapterError, match="3 times"):
        twin.receive(consumer)
    assert connection._dispatchers == []


def test_what_comes_after_the_end_makes_no_error_of_it(twin: Twin) -> None:
    """A message that has broken three connections causes no error in a consumer that was drained."""
    connection = twin.connect(STRICT)
    consumer = twin.call(connection.consumer("orders"))
    twin.call(connection.drain(0))
    late = Arrival(Letter(0), connection._driver._epoch, counts=False)
    verdict = Stop(redelivery.AdapterError("three times"))
    connection._driver.protocol_poison._closings[late.key] = [twin.clock.monotonic()]
    connection._driver.protocol_poison.convicted = {late.key: verdict}
    consumer._dispatcher.feed(Arrived(late.consumer, [late]))
    assert twin.receive(consumer) is None
    assert late.state == "held"

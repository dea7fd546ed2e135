"""Pulling messages, on threads and on a loop."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
from tests.driver.twins import body_of

import redelivery
from redelivery import AlreadySettled

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.driver.twins import Twin

    from redelivery import Message


def fill(twin: Twin, *bodies: str, destination: str = "orders") -> None:
    for body in bodies:
        twin.broker.send(destination, body)


def fail(message: Message) -> None:
    raise ValueError("no")


def test_receive_polls_waits_and_gives_up(twin: Twin) -> None:
    """`receive` polls with 0, waits with None, and ends exactly after a timeout."""
    connection = twin.connect()
    consumer = twin.call(connection.consumer("orders"))
    before = twin.clock.monotonic()
    assert twin.receive(consumer, 0) is None
    assert twin.clock.monotonic() == before
    assert twin.receive(consumer, 3.5) is None
    assert twin.clock.monotonic() == before + 3.5
    fill(twin, "a", "b")
    assert body_of(twin.receive(consumer, None)) == "a"
    assert (body_of(twin.receive(consumer, 10)), consumer.destination) == ("b", "queue://orders")


def test_iteration_goes_on_until_the_consumer_ends(twin: Twin) -> None:
    """Iterating yields message after message, and ends when the consumer is closed."""
    connection = twin.connect()
    consumer = twin.call(connection.consumer("orders"))
    fill(twin, "a", "b", "c")
    seen = []
    for body in twin.bodies(consumer):
        seen.append(body)
        if body == "c":
            twin.call(consumer.close())
    assert seen == ["a", "b", "c"]
    assert twin.broker.depth("orders") == 0
    assert connection.report().accepted == 3


def test_iteration_ends_with_a_drain(twin: Twin) -> None:
    """Draining releases messages that were not dispatched, uncounted, and ends the loops."""
    connection = twin.connect()
    consumer = twin.call(connection.consumer("orders"))
    fill(twin, "a", "b", "c")
    message = twin.receive(consumer)
    message.accept()
    report = twin.call(connection.drain())
    assert list(twin.bodies(consumer)) == []
    assert (report.accepted, report.released) == (1, 2)
    assert [held.broker_count for held in twin.broker.messages("orders")] == [0, 0]


def leave_by_return(twin: Twin, message: Message) -> str:
    with message:
        return "returned"
    raise AssertionError("not reached")


def leave_by_break(twin: Twin, message: Message) -> None:
    for _ in range(3):
        with message:
            break


def leave_by_continue(twin: Twin, message: Message) -> None:
    for _ in range(1):
        with message:
            continue


def leave_at_the_end(twin: Twin, message: Message) -> None:
    twin.inside(message, lambda _: None)


@pytest.mark.parametrize("leave", [leave_by_return, leave_by_break, leave_by_continue, leave_at_the_end])
def test_a_clean_exit_accepts(twin: Twin, leave: Callable[[Any, Message], object]) -> None:
    """A message is accepted at the end of its block without an exception, however it is left."""
    connection = twin.connect()
    consumer = twin.call(connection.consumer("orders"))
    fill(twin, "a")
    message = twin.receive(consumer)
    leave(twin, message)
    assert message.outcome == "accepted"
    assert twin.broker.depth("orders") == 0


def test_an_exception_is_logged_swallowed_and_goes_to_the_policy(
    twin: Twin, caplog: pytest.LogCaptureFixture
) -> None:
    """An `Exception` in a block is logged, and the message is redelivered after its delay as a new message."""
    connection = twin.connect()
    consumer = twin.call(connection.consumer("orders"))
    fill(twin, "a")
    message = twin.receive(consumer)
    with caplog.at_level(logging.WARNING, "redelivery"):
        twin.inside(message, fail)
    assert "delivery 1 of" in caplog.text
    assert "ValueError: no" in caplog.text
    assert (message.outcome, consumer.parked) == ("redelivered", 1)
    assert twin.receive(consumer, 0.999) is None
    again = twin.receive(consumer, 0.001)
    assert again is not message
    assert (again.redelivery_count, again.delivery_count, again.redelivered) == (1, 2, True)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_another_exception_releases_and_propagates(twin: Twin, kind: type[BaseException]) -> None:
    """An end of the program in a block releases the message, uncounted, and is passed on."""
    connection = twin.connect()
    consumer = twin.call(connection.consumer("orders"))
    fill(twin, "a")
    message = twin.receive(consumer)
    with pytest.raises(kind), message:
        raise kind
    assert message.outcome == "released"
    again = twin.receive(consumer)
    assert (again.redelivery_count, again.broker_count, again.redelivered) == (0, 0, False)
    assert connection.report().released == 1


@pytest.mark.parametrize(
    ("settle", "outcome", "left"),
    [
        (lambda m: m.accept(), "accepted", 0),
        (lambda m: m.fail("because"), "redelivered", 1),
        (lambda m: m.poison(), "poisoned", 0),
        (lambda m: m.release(), "released", 1),
    ],
)
def test_settled_inside(twin: Twin, settle: Callable[[Message], bool], outcome: str, left: int) -> None:
    """A message that is settled inside its block stays so, whatever ends the block."""
    connection = twin.connect()
    consumer = twin.call(connection.consumer("orders"))
    fill(twin, "a")
    message = twin.receive(consumer)

    def action(message: Message) -> None:
        assert settle(message) is True
        raise ValueError("later")

    twin.inside(message, action)
    assert message.outcome == outcome
    assert twin.broker.depth("orders") == left


@pytest.mark.parametrize("second", ["accept", "fail", "poison", "release"])
def test_a_second_settle_is_an_error(twin: Twin, second: str) -> None:
    """A second settlement of a message raises, and changes nothing."""
    connection = twin.connect()
    consumer = twin.call(connection.consumer("orders"))
    fill(twin, "a")
    message = twin.receive(consumer)
    message.accept()
    with pytest.raises(AlreadySettled, match=r"is settled already \(accepted\); settle each message once"):
        getattr(message, second)()
    assert message.outcome == "accepted"


def test_a_second_settle_inside_is_told(twin: Twin, caplog: pytest.LogCaptureFixture) -> None:
    """An exception after the settlement is swallowed by the block, and logged."""
    connection = twin.connect()
    consumer = twin.call(connection.consumer("orders"))
    fill(twin, "a")

    def twice(message: Message) -> None:
        message.accept()
        message.accept()

    twin.inside(twin.receive(consumer), twice)
    assert "AlreadySettled" in caplog.text


def test_steering_inside(twin: Twin) -> None:
    """Poison, Discard and Defer have the same effect in a block as in a handler."""
    connection = twin.connect()
    consumer = twin.call(connection.consumer("orders"))
    fill(twin, "poison", "discard", "defer")
    outcomes = []
    for error in (redelivery.Poison("bad"), redelivery.Discard("old"), redelivery.Defer(5)):

        def steer(_: Message, error: Exception = error) -> None:
            raise error

        message = twin.receive(consumer)
        twin.inside(message, steer)
        outcomes.append(message.outcome)
    assert outcomes == ["poisoned", "discarded", "deferred"]
    assert [letter.cause for letter in twin.broker.dead_letters()] == ["Poison: bad"]
    assert twin.receive(consumer, 4.999) is None
    assert twin.receive(consumer, 0.001).redelivery_count == 0


def test_what_a_message_tells(twin: Twin) -> None:
    """A message has every property that the broker sends, with its type."""
    connection = twin.connect()
    consumer = twin.call(connection.consumer("orders"))
    identity = twin.call(
        connection.send(
            "orders", '{"a": 1}', headers={"colour": "red"}, content_type="application/json", correlation_id="c",
            reply_to="answers", priority=7, ttl=60, group="g", persistent=False,
        )
    )  # fmt: skip
    message = twin.receive(consumer)
    now = twin.clock.time()
    assert message.body == b'{"a": 1}'
    assert message.text == '{"a": 1}'
    assert message.json() == {"a": 1}
    assert message.value == message.body
    assert message.headers["colour"] == "red"
    assert message.message_id == message.headers["redeliveryId"] == identity
    assert message.destination == "queue://orders"
    assert (message.correlation_id, message.reply_to) == ("c", "queue://answers")
    assert (message.content_type, message.priority, message.persistent) == ("application/json", 7, False)
    assert message.group == "g"
    assert message.timestamp.timestamp() == now
    assert message.expiration.timestamp() == now + 60
    assert (message.redelivery_count, message.delivery_count, message.broker_count) == (0, 1, 0)
    assert message.redelivered is False
    assert message.first_seen is None
    assert "unsettled" in repr(message)
    message.fail()
    again = twin.receive(consumer, 1)
    assert again.first_seen.timestamp() == now
    assert again.redelivered is True


def test_a_consumer_that_is_closed_gives_everything_back(twin: Twin) -> None:
    """Unsettled messages of a closed consumer are redelivered; a later settlement is stale."""
    connection = twin.connect()
    first = twin.call(connection.consumer("orders"))
    fill(twin, "a", "b")
    message = twin.receive(first)
    twin.call(first.close())
    twin.call(first.close())
    assert twin.receive(first) is None
    assert message.accept() is False
    assert message.outcome == "stale"
    second = twin.call(connection.consumer("orders"))
    assert body_of(twin.receive(second)) == "a"
    assert connection.report().stale == 1


def test_two_consumers_share_a_queue(twin: Twin) -> None:
    """Two consumers of one connection get different messages, and have their own counts."""
    connection = twin.connect()
    first = twin.call(connection.consumer("orders", credit=1))
    second = twin.call(connection.consumer("orders", credit=1))
    fill(twin, "a", "b")
    one, two = twin.receive(first), twin.receive(second)
    assert {one.text, two.text} == {"a", "b"}
    one.fail()
    assert (first.parked, second.parked) == (1, 0)


def test_two_connections(twin: Twin) -> None:
    """A message that one connection releases by its close is delivered to the other, redelivered flag set."""
    first, second = twin.connect(), twin.connect()
    consumer = twin.call(first.consumer("orders"))
    fill(twin, "a")
    message = twin.receive(consumer)
    twin.leave(first)
    assert message.fail() is False
    other = twin.receive(twin.call(second.consumer("orders")))
    assert (other.text, other.redelivered, other.broker_count) == ("a", True, 1)


def test_topics_and_durable_subscriptions(twin: Twin) -> None:
    """A durable subscription keeps messages while its consumer is away; a plain one does not."""
    connection = twin.connect("?jms.clientID=me")
    durable = twin.call(connection.consumer("topic://news", subscription="mine"))
    plain = twin.call(connection.consumer("topic://news"))
    twin.call(durable.close())
    twin.call(plain.close())
    fill(twin, "a", destination="topic://news")
    plain = twin.call(connection.consumer("topic://news"))
    durable = twin.call(connection.consumer("topic://news", subscription="mine"))
    assert body_of(twin.receive(durable)) == "a"
    assert twin.receive(plain) is None

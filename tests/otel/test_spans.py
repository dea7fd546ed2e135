"""Spans: their number, their links, and their attributes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode
from tests.driver.twins import eventually
from tests.otel.recorded import ONCE, PRODUCER, PRODUCER_SPAN, PRODUCER_TRACE, attributes, linked, span_id

import redelivery
from redelivery import Defer, Discard, Poison
from redelivery.otel.spans import Ended, Remembered

if TYPE_CHECKING:
    from tests.driver.twins import Twin
    from tests.otel.recorded import Recorded

    from redelivery import Message


def fails(message: Message) -> None:
    """Fail for a message with the text `bad`."""
    if message.text == "bad":
        raise ValueError("no stock")


def nothing(_: Message) -> None:
    """Succeed."""


def test_a_delivery_is_a_trace_of_its_own_linked_to_the_send(twin: Twin, recorded: Recorded) -> None:
    """The headers carry the producer's span; the consumer's span is a root with a link to it."""
    connection = twin.connect(observers=[recorded.telemetry()])
    twin.listen(connection, "orders", nothing)
    name = twin.call(connection.send("orders", "a", correlation_id="c1"))
    eventually(twin, lambda: len(recorded.spans()) == 2)
    [send], [process] = recorded.spans("send"), recorded.spans("process")
    assert (send.name, send.kind) == ("send orders", SpanKind.PRODUCER)
    assert (process.name, process.kind, process.parent) == ("process orders", SpanKind.CONSUMER, None)
    assert linked(process) == [span_id(send)]
    assert attributes(send) == {
        "messaging.system": "memory", "messaging.operation.name": "send", "messaging.operation.type": "send",
        "messaging.destination.name": "orders", "redelivery.destination.kind": "queue", "messaging.message.id": name,
    }  # fmt: skip
    assert attributes(process) == {
        "messaging.system": "memory", "messaging.operation.name": "process", "messaging.operation.type": "process",
        "messaging.destination.name": "orders", "redelivery.destination.kind": "queue", "messaging.message.id": name,
        "messaging.message.conversation_id": "c1", "redelivery.delivery.count": 1, "redelivery.outcome": "accepted",
    }  # fmt: skip
    assert process.status.status_code is StatusCode.UNSET


def test_a_delivery_may_be_a_child_of_the_send(twin: Twin, recorded: Recorded) -> None:
    """With `links_only=False` all spans of a message are one trace, its dead letter's, too."""
    connection = twin.connect(observers=[recorded.telemetry(links_only=False)], policies=ONCE)
    twin.listen(connection, "orders", fails)
    twin.broker.send("orders", "bad", headers=PRODUCER)
    twin.advance(5)
    first, second = recorded.spans("process")
    [settle] = recorded.spans("settle")
    assert [each.context.trace_id for each in (first, second, settle) if each.context] == [PRODUCER_TRACE] * 3
    assert [each.parent.span_id for each in (first, second) if each.parent] == [PRODUCER_SPAN] * 2
    assert settle.parent is not None
    assert settle.parent.span_id == span_id(second)


def test_a_message_keeps_its_producer_through_poison_and_redrive(twin: Twin, recorded: Recorded) -> None:
    """Each delivery is linked to the one send, before and after the redrive; the dead letter also to its run."""
    down = [True]

    def handle(_: Message) -> None:
        if down:
            raise ValueError("no stock")

    connection = twin.connect(observers=[recorded.telemetry()], policies=ONCE)
    twin.listen(connection, "orders", handle)
    twin.call(connection.send("orders", "a"))
    twin.advance(5)
    eventually(twin, lambda: recorded.spans("settle"))
    [send] = recorded.spans("send")
    first, second = recorded.spans("process")
    [settle] = recorded.spans("settle")
    assert [linked(each) for each in (first, second)] == [[span_id(send)]] * 2
    assert linked(settle) == [span_id(second), span_id(send)]
    assert (settle.name, settle.kind) == ("settle orders", SpanKind.CLIENT)
    assert settle.parent is not None
    assert settle.parent.span_id == span_id(second)
    assert settle.start_time is not None
    assert second.end_time is not None
    assert settle.start_time >= second.end_time
    assert attributes(settle)["redelivery.cause"] == "ValueError: no stock"
    down.clear()
    redriven(twin)
    eventually(twin, lambda: len(recorded.spans("process")) == 3)
    third = recorded.spans("process")[2]
    assert (linked(third), attributes(third)["redelivery.outcome"]) == ([span_id(send)], "accepted")
    assert len(recorded.spans("send")) == 1, "a copy is no send"


def redriven(twin: Twin) -> None:
    """Redrive all dead letters, in real time: the tools have their own connection."""
    with redelivery.dead_letters(twin.broker.uri) as tools:
        assert sum(tools.redrive().destinations.values()) == 1


def test_a_delayed_copy_keeps_its_producer(twin: Twin, recorded: Recorded) -> None:
    """Deliveries of copies that the broker delays are linked to the send, too."""
    connection = twin.connect("?redelivery.scheduler=broker", observers=[recorded.telemetry()], policies=ONCE)
    twin.broker.send("orders", "bad", headers=PRODUCER | {"tracestate": "a=b"})
    twin.listen(connection, "orders", fails)
    twin.advance(5)
    eventually(twin, lambda: recorded.spans("settle"))
    assert [linked(each) for each in recorded.spans("process")] == [[PRODUCER_SPAN]] * 2
    [dead] = twin.broker.dead_letters()
    assert {name: dead.headers[name] for name in ("traceparent", "tracestate")} == PRODUCER | {
        "tracestate": "a=b"
    }


def test_what_failed_is_an_error(twin: Twin, recorded: Recorded) -> None:
    """A failed delivery's span has the status, the type, the cause, and the exception once.

    It also has the decision of the policy.
    """
    connection = twin.connect(observers=[recorded.telemetry()], policies=ONCE)
    twin.listen(connection, "orders", fails)
    twin.broker.send("orders", "bad")
    twin.advance(5)
    first, second = recorded.spans("process")
    wanted = (
        "error.type",
        "redelivery.cause",
        "redelivery.outcome",
        "redelivery.delay",
        "redelivery.delivery.count",
    )
    found = [[attributes(each).get(name) for name in wanted] for each in (first, second)]
    assert found == [
        ["ValueError", "ValueError: no stock", "redelivered", 1.0, 1],
        ["ValueError", "ValueError: no stock", "poisoned", None, 2],
    ]
    for each in (first, second):
        assert (each.status.status_code, each.status.description) == (
            StatusCode.ERROR,
            "ValueError: no stock",
        )
        assert [event.name for event in each.events] == ["exception"]
        assert attributes(each)["redelivery.delivery.maximum"] == 2


@pytest.mark.parametrize(
    ("error", "status", "events", "outcome"),
    [
        (Defer(30), StatusCode.UNSET, 0, "deferred"),
        (Discard("old"), StatusCode.UNSET, 0, "discarded"),
        (Poison("torn"), StatusCode.ERROR, 1, "poisoned"),
    ],
)
def test_what_a_handler_decides(
    twin: Twin, recorded: Recorded, error: Exception, status: StatusCode, events: int, outcome: str
) -> None:
    """Defer and discard are not errors; poison is one."""

    def handle(_: Message) -> None:
        raise error

    connection = twin.connect(observers=[recorded.telemetry()])
    twin.listen(connection, "orders", handle)
    twin.broker.send("orders", "a")
    eventually(twin, lambda: recorded.spans("process"))
    [span] = recorded.spans("process")
    assert (span.status.status_code, len(span.events)) == (status, events)
    assert attributes(span)["redelivery.outcome"] == outcome
    assert attributes(span).get("error.type") == ("Poison" if events else None)


def test_a_release_is_no_error(twin: Twin, recorded: Recorded) -> None:
    """The span of a released message says so, and has no error."""

    def handle(message: Message) -> None:
        if not recorded.spans("process"):
            message.release()

    connection = twin.connect(observers=[recorded.telemetry()])
    twin.listen(connection, "orders", handle)
    twin.broker.send("orders", "a")
    eventually(twin, lambda: recorded.spans("process"))
    span = recorded.spans("process")[0]
    assert (span.status.status_code, attributes(span)["redelivery.outcome"]) == (StatusCode.UNSET, "released")


def test_a_failure_without_an_exception_has_a_type(twin: Twin, recorded: Recorded) -> None:
    """`fail` with a text has the type `_OTHER` of the conventions."""

    def handle(message: Message) -> None:
        message.fail("no stock today")

    connection = twin.connect(observers=[recorded.telemetry()])
    twin.listen(connection, "orders", handle)
    twin.broker.send("orders", "a")
    eventually(twin, lambda: recorded.spans("process"))
    found = attributes(recorded.spans("process")[0])
    assert (found["error.type"], found["redelivery.cause"]) == ("_OTHER", "no stock today")


def test_a_send_that_is_refused_is_an_error(twin: Twin, recorded: Recorded) -> None:
    """The span and the counter of a refused send name the exception."""
    connection = twin.connect(observers=[recorded.telemetry()])
    twin.broker.refuse_sends()
    with pytest.raises(redelivery.RedeliveryError):
        twin.call(connection.send("orders", "a"))
    [send] = recorded.spans("send")
    assert (send.status.status_code, [each.name for each in send.events]) == (StatusCode.ERROR, ["exception"])
    error = attributes(send)["error.type"]
    assert recorded.counts("messaging.client.sent.messages", "error.type") == {error: 1}


def test_a_wildcard_is_a_template(twin: Twin, recorded: Recorded) -> None:
    """A consumer of many queues has spans with one name, and the queue of each message as an attribute."""
    connection = twin.connect(observers=[recorded.telemetry()])
    twin.listen(connection, "orders.*", nothing)
    twin.broker.send("orders.eu", "a")
    eventually(twin, lambda: recorded.spans("process"))
    [span] = recorded.spans("process")
    assert span.name == "process orders.*"
    assert attributes(span)["messaging.destination.name"] == "orders.eu"
    assert attributes(span)["messaging.destination.template"] == "orders.*"
    [point] = recorded.points("messaging.process.duration")
    assert point.attributes["messaging.destination.template"] == "orders.*"
    assert "messaging.destination.name" not in point.attributes


def test_a_durable_subscription_is_named(twin: Twin, recorded: Recorded) -> None:
    """The span of a durable subscription has its name: several may be on one topic."""
    connection = twin.connect("?jms.clientID=me", observers=[recorded.telemetry()])
    twin.listen(connection, "topic://news", nothing, subscription="mine")
    twin.call(connection.send("topic://news", "a"))
    eventually(twin, lambda: recorded.spans("process"))
    found = attributes(recorded.spans("process")[0])
    assert (found["redelivery.destination.kind"], found["messaging.destination.subscription.name"]) == (
        "topic",
        "mine",
    )


def test_a_dead_letter_that_had_no_run_is_linked_to_its_producer(twin: Twin, recorded: Recorded) -> None:
    """A redelivered message of a pulled consumer has no span; its dead letter has one, linked to the producer."""
    connection = twin.connect(observers=[recorded.telemetry()])
    consumer = twin.call(connection.consumer("orders"))
    twin.broker.send("orders", "a", headers=PRODUCER)
    twin.receive(consumer).poison("torn")
    eventually(twin, lambda: recorded.spans("settle"))
    [settle] = recorded.spans("settle")
    assert (settle.parent, linked(settle)) == (None, [PRODUCER_SPAN])


def test_a_commit_after_the_handlers_end(twin: Twin, recorded: Recorded) -> None:
    """A delivery that its session decides later is counted once, and a dead letter is linked to its run."""
    connection = twin.connect(observers=[recorded.telemetry()], policies=ONCE)
    session = connection.session("transacted")
    session.listen("orders", twin.handler(nothing))
    twin.call(connection.start())
    twin.broker.send("orders", "a")
    twin.broker.send("orders", "b", headers=PRODUCER)
    eventually(twin, lambda: len(recorded.spans("process")) == 2)
    assert ["redelivery.outcome" in attributes(each) for each in recorded.spans("process")] == [False, False]
    for _ in range(2):
        twin.call(session.rollback())
        twin.advance(5)
    eventually(twin, lambda: len(recorded.spans("settle")) == 2)
    assert sum(recorded.counts("messaging.client.consumed.messages", "x").values()) == 4
    assert recorded.counts("redelivery.outcomes", "redelivery.outcome") == {"redelivered": 2, "poisoned": 2}
    runs = recorded.spans("process")[2:]
    assert {linked(each)[0] for each in recorded.spans("settle")} == {span_id(each) for each in runs}


def test_only_the_newest_are_remembered() -> None:
    """Dead letters that are never confirmed keep a thousand span contexts at most."""
    kept, objects = Remembered(), [object() for _ in range(1500)]
    for each in objects:
        kept.put(each, Ended(trace.INVALID_SPAN_CONTEXT, 0))
    assert [kept.take(objects[place])[0] for place in (0, 499, 500, 1499, 1499)] == [
        False,
        False,
        True,
        True,
        False,
    ]

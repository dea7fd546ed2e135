"""ERRORs of RabbitMQ, which never name the request that they refuse (docs/measured/rabbitmq-stomp-errors.md)."""

from __future__ import annotations

import pytest
from stomp.utils import Frame
from tests.eventually import eventually
from tests.stomp.test_rabbitmq import arrive
from tests.stomp.test_refused import Wire

from redelivery import AdapterError, TransportError
from redelivery.adapter import Sent, Subscribed
from redelivery.core.commands import Accept, Forward, Send, Subscribe, Unsubscribe
from redelivery.core.delivery import Cause
from redelivery.core.events import Arrived, Confirmed, ConnectionLost
from redelivery.core.outgoing import Outgoing
from redelivery_stomp import connection, disconnect_cause
from redelivery_stomp.profiles import StompRabbitMQ

ACCESS = "ACCESS_REFUSED - access to {} in vhost '/' refused for user 'x'"


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    """Return an adapter logged in at RabbitMQ, whose frames can be read and answered."""
    return Wire(monkeypatch, StompRabbitMQ())


def refuse(wire: Wire, text: str, message: str = "access_refused") -> None:
    """Make an ERROR arrive: RabbitMQ never names the request that it answers."""
    wire.link.on_error(Frame("ERROR", {"message": message, "version": "1.0,1.1,1.2"}, text.encode()))


def test_a_refused_consumer(wire: Wire) -> None:
    """An ERROR that names a queue refuses its consumer, not another one."""
    wire.adapter.execute(
        (Subscribe(1, "queue://orders", window=10), Subscribe(2, "queue://denied", window=10))
    )
    wire.answer(b"SUBSCRIBE")
    refuse(wire, ACCESS.format("queue 'denied'"))
    other, refused, lost = wire.events
    assert isinstance(refused, Subscribed)
    assert isinstance(other, Subscribed)
    assert (refused.consumer, other.consumer) == (2, 1)
    assert "access_refused: ACCESS_REFUSED - access to queue 'denied'" in str(refused.error)
    assert isinstance(lost, ConnectionLost)
    assert other.error is None


@pytest.mark.parametrize(
    ("destination", "text"),
    [
        ("queue://a/b", ACCESS.format("queue 'a/b'")),
        ("topic://news", ACCESS.format("topic 'news' in exchange 'amq.topic'")),
        ("native:///exchange/nope/k", "NOT_FOUND - no exchange 'nope' in vhost '/'"),
        ("native:///foo/bar", "'/foo/bar' is not a valid destination."),
        ("native:///temp-queue/x", "'/temp-queue/x' is not a valid destination for 'SEND'"),
        ("queue://q", "PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for queue 'q' in vhost '/'"),
    ],
)
def test_a_refused_message(wire: Wire, destination: str, text: str) -> None:
    """A refused message is an AdapterError; other requests get the loss of the connection."""
    wire.adapter.execute((Send(1, Outgoing("queue://fine", b"")), Send(2, Outgoing(destination, b""))))
    refuse(wire, text)
    errors = {event.token: event.error for event in wire.events if isinstance(event, Sent)}
    assert isinstance(errors[2], AdapterError)
    assert isinstance(errors[1], TransportError)


@pytest.mark.parametrize("vague", [1, 2])
def test_the_reason_follows_behind_errors_without_one(wire: Wire, vague: int) -> None:
    """The ERROR with the reason counts, even if ERRORs without one, for the next messages, are read first."""
    destination = "native:///exchange/nope/k"
    wire.adapter.execute([Send(number, Outgoing(destination, b"")) for number in range(3)])
    for _ in range(vague):
        refuse(wire, "", "Processing error")
    assert wire.events == []
    refuse(wire, "NOT_FOUND - no exchange 'nope' in vhost '/'", "not_found")
    errors = [event.error for event in wire.events if isinstance(event, Sent)]
    assert [type(error) for error in errors] == [AdapterError, TransportError, TransportError]
    assert all("NOT_FOUND - no exchange 'nope'" in str(error) for error in errors)


def test_a_reason_that_never_comes_is_not_waited_for(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection ends half a second after an ERROR without a reason, if no other follows."""
    assert connection.REASON < disconnect_cause.AT_ONCE, "while the ERROR counts as the cause"
    monkeypatch.setattr(wire.link._reason, "_limit", 0.01)
    wire.adapter.execute((Send(1, Outgoing("queue://orders", b"")),))
    refuse(wire, "", "Processing error")
    eventually(lambda: len(wire.events) == 2)
    lost, sent = wire.events
    assert isinstance(lost, ConnectionLost)
    assert isinstance(sent, Sent)
    assert isinstance(sent.error, TransportError)
    assert "Processing error" in str(sent.error)


@pytest.mark.parametrize("explained", [True, False])
def test_a_write_that_fails_lets_the_reason_be_read(
    wire: Wire, monkeypatch: pytest.MonkeyPatch, explained: bool
) -> None:
    """A failed write waits a moment for the broker's ERROR; without one, the loss is reported with its own reason."""

    def write(data: bytes) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr(wire.link._reason, "_limit", 0.01 if not explained else 60.0)
    wire.adapter.execute((Send(1, Outgoing("native:///exchange/nope/k", b"")),))
    monkeypatch.setattr(wire.link.transport, "write", write)
    wire.adapter.execute((Send(2, Outgoing("queue://orders", b"")),))
    if explained:
        assert wire.events == []
        refuse(wire, "NOT_FOUND - no exchange 'nope' in vhost '/'", "not_found")
    eventually(lambda: len(wire.events) == 3)
    errors = {event.token: event.error for event in wire.events if isinstance(event, Sent)}
    assert isinstance(errors[1], AdapterError if explained else TransportError)
    assert ("NOT_FOUND" if explained else "cannot write: [Errno 32] Broken pipe") in str(errors[2])


def test_a_refused_dead_letter_accuses_no_message(wire: Wire) -> None:
    """A refused dead letter accuses no message: its consumer goes on, and the engine delays the next try."""
    wire.adapter.execute((Subscribe(1, "queue://orders", window=10),))
    one, two = arrive(wire, 1, 2)
    wire.adapter.execute((Accept((two,)), Forward(one, Outgoing("queue://DLQ", b"x"), Cause("bad"), 1)))
    refuse(wire, ACCESS.format("queue 'DLQ'"))
    confirmed = next(event for event in wire.events if isinstance(event, Confirmed))
    lost = next(event for event in wire.events if isinstance(event, ConnectionLost))
    assert isinstance(confirmed.error, AdapterError)
    assert lost.suspect is None


def test_a_user_who_may_not_write_accuses_no_message(wire: Wire) -> None:
    """A refused exchange is about the oldest message on its way to a queue, and not about a later SUBSCRIBE."""
    wire.adapter.execute((Subscribe(1, "queue://orders", window=10),))
    wire.answer_last()
    (one,) = arrive(wire, 1)
    wire.adapter.execute((Forward(one, Outgoing("queue://DLQ", b"x"), Cause("bad"), 1),))
    wire.adapter.execute((Subscribe(2, "queue://bills", window=10),))
    refuse(wire, "ACCESS_REFUSED - access to exchange 'amq.default' in vhost '/' refused for user 'app'")
    confirmed = next(event for event in wire.events if isinstance(event, Confirmed))
    lost = next(event for event in wire.events if isinstance(event, ConnectionLost))
    refused = [event.error for event in wire.events if isinstance(event, Subscribed) and event.consumer == 2]
    assert isinstance(confirmed.error, AdapterError)
    assert (lost.suspect, [type(error) for error in refused]) == (None, [TransportError])


def test_dead_letters_that_cannot_be_declared(wire: Wire) -> None:
    """A consumer with a dead-letter queue that cannot be declared is refused before its first message."""
    wire.adapter.execute((Subscribe(1, "queue://orders", window=10, dead_letters=("queue://denied",)),))
    refuse(wire, ACCESS.format("queue 'denied'"))
    refused = wire.events[0]
    assert isinstance(refused, Subscribed)
    assert "the dead-letter destination queue://denied cannot be used" in str(refused.error)


@pytest.mark.parametrize("subscribed", [False, True])
def test_dead_letters_that_are_refused_after_the_answer(wire: Wire, subscribed: bool) -> None:
    """An ERROR about the dead-letter queue refuses the consumer, even if it arrives after the RECEIPTs."""
    wire.adapter.execute((Subscribe(1, "queue://orders", window=10, dead_letters=("queue://denied",)),))
    assert b"SUBSCRIBE" not in wire.commands()
    wire.answer(b"ABORT")
    if subscribed:
        wire.answer(b"SUBSCRIBE")
    refuse(wire, ACCESS.format("queue 'denied'"))
    told = [event for event in wire.events if isinstance(event, Subscribed)]
    errors = [str(event.error) for event in told if event.error is not None]
    assert len(errors) == 1
    assert "the dead-letter destination queue://denied cannot be used" in errors[0]
    assert (len(told) > 1) is subscribed
    assert isinstance(wire.events[-1], ConnectionLost)


def test_doubts_do_not_heap_up(wire: Wire) -> None:
    """Ended consumers leave no pending checks on a connection that is open for weeks."""
    for number in range(1, 4):
        wire.adapter.execute((Subscribe(number, "queue://orders", window=10, dead_letters=("queue://DLQ",)),))
        wire.answer_last()
        wire.answer_last()
        wire.adapter.execute((Unsubscribe(number),))
    assert len(wire.link.receipts._doubtful) == 1


def test_a_consumer_that_is_refused_without_a_reason(wire: Wire) -> None:
    """A "Processing error" after a check that proves nothing names both the consumer and its dead-letter queue."""
    wire.adapter.execute((Subscribe(1, "queue://orders", window=10, dead_letters=("queue://denied",)),))
    wire.answer(b"ABORT")
    refuse(wire, "", "Processing error")
    wire.link.lost("the broker closed the connection")
    (error,) = [str(event.error) for event in wire.events if isinstance(event, Subscribed)]
    assert error == (
        "the broker refused a consumer of queue://orders, or its dead-letter destination queue://denied: "
        "Processing error"
    )


def test_the_reason_behind_the_first_line_of_a_channel_that_died(wire: Wire) -> None:
    """A cluster without a majority names it in the third line: the consumer is refused for now."""
    reason = "failed consuming from quorum queue 'orders' in vhost '/': nodedown"
    wire.adapter.execute((Subscribe(1, "queue://orders", window=10),))
    refuse(wire, "", "Processing error")
    refuse(
        wire,
        f'Reason: {{shutdown,\n  {{connection_closing,\n    {{server_initiated_close,541,\n "{reason}"}}}}}}',
        "AMQP channel died",
    )
    wire.link.lost("the broker closed the connection")
    (error,) = [event.error for event in wire.events if isinstance(event, Subscribed)]
    assert isinstance(error, AdapterError)
    assert error.passes


def test_a_receipt_of_the_check_proves_nothing(wire: Wire) -> None:
    """Each connection checks again: the ERROR of a check may have been lost with the connection."""
    ask = Subscribe(1, "queue://orders", window=10, dead_letters=("queue://denied",))
    wire.adapter.execute((ask,))
    wire.answer(b"ABORT")
    wire.link.lost("cannot write")
    again = wire.again()
    wire.adapter.execute((ask,))
    assert again.commands() == [b"BEGIN", b"SEND", b"ABORT"]


@pytest.mark.parametrize(
    "text",
    [
        "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout value used: 1800000 ms.",
        "PRECONDITION_FAILED - unknown delivery tag 5",
        # From a quorum queue whose message was unacknowledged for too long (4.3).
        "Server cancelled subscription",
        "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'",
        "There is no current subscription with tag 'T_1'.",
    ],
)
def test_an_error_about_something_else_refuses_nothing(wire: Wire, text: str) -> None:
    """An ERROR about something else ends no consumer and accuses no message."""
    wire.adapter.execute((Subscribe(1, "queue://orders", window=10),))
    arrive(wire, 1)
    message = "Subscription not found" if "tag 'T_1'" in text else "precondition_failed"
    refuse(wire, text, message)
    assert [type(event) for event in wire.events] == [Arrived, ConnectionLost, Subscribed]
    lost, answer = wire.events[1:]
    assert isinstance(lost, ConnectionLost)
    assert lost.suspect is None
    assert isinstance(answer, Subscribed)
    assert isinstance(answer.error, TransportError)


def test_neither_the_user_nor_the_virtual_host_is_taken_for_a_queue() -> None:
    """The user and the virtual host in an ERROR do not count as a queue, even with the same name."""
    profile = StompRabbitMQ()
    text = "access to queue 'denied.x' in vhost '/' refused for user 'tester'"
    assert profile.names(text, "/queue/denied.x")
    assert not profile.names(text, "/queue/tester")
    assert not profile.names(text, "/queue/")


def test_a_queue_with_other_arguments_is_an_error_with_its_cure(wire: Wire) -> None:
    """A queue with other arguments is an error that names the option: each SEND declares its queue."""
    wire.adapter.execute((Send(1, Outgoing("queue://q", b"")),))
    refuse(wire, "PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for queue 'q' in vhost '/'")
    (error,) = [event.error for event in wire.events if isinstance(event, Sent)]
    assert "name it native:///amq/queue/q, which declares nothing" in str(error)
    assert "set those as redelivery.queueArguments" in str(error)

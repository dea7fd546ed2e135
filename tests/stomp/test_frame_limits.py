"""SENDs that are too large for the broker: they are refused here after two connections ended, never after one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from stomp.utils import Frame
from tests.stomp.test_refused import Wire

from redelivery import AdapterError, TransportError
from redelivery.adapter import Sent
from redelivery.core.commands import Commit, Forward, Send, Subscribe
from redelivery.core.delivery import Cause
from redelivery.core.events import Arrived, Confirmed
from redelivery.core.outgoing import Outgoing
from redelivery_stomp.profiles import StompArtemis, StompClassic, StompRabbitMQ

if TYPE_CHECKING:
    from redelivery.errors import RedeliveryError

CLOSED = "the connection was closed by the other side"
# Headers of a SEND without properties on RabbitMQ: destination, persistent, content-length, timestamp, receipt.
OWN = 5
MIB = 1024 * 1024


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    """Return an adapter logged in at RabbitMQ, whose frames can be read."""
    return Wire(monkeypatch, StompRabbitMQ())


def wide(headers: int) -> Outgoing:
    """Return a message whose SEND has this number of headers."""
    return Outgoing("queue://q", b"x", headers={f"h{number}": "v" for number in range(headers - OWN)})


def large(size: int) -> Outgoing:
    """Return a message with a body of this number of bytes."""
    return Outgoing("queue://q", b"x" * size)


def send(wire: Wire, message: Outgoing) -> None:
    """Send a message with the adapter."""
    wire.adapter.execute((Send(7, message),))


def answers(wire: Wire) -> list[RedeliveryError | None]:
    """Return the answers so far, oldest first."""
    return [event.error for event in wire.events if isinstance(event, Sent)]


def end(wire: Wire, reason: str = CLOSED, *, by_broker: bool = True) -> None:
    """End the connection, and open another one."""
    wire.link.lost(reason, by_broker=by_broker)
    epoch = wire.link.epoch
    wire.again().link.epoch = epoch + 1


def end_over(wire: Wire, message: Outgoing, times: int = 2) -> None:
    """Send the message, and end the connection, this number of times."""
    for _ in range(times):
        send(wire, message)
        assert wire.commands() == [b"SEND"]
        end(wire)


@pytest.mark.parametrize(
    ("message", "more", "within", "needs", "cure"),
    [
        (
            wide(101),
            wide(110),
            wide(100),
            "more than 100 headers, and this message needs 110:",
            "fewer headers",
        ),
        (
            large(4 * MIB),
            large(5_000_000),
            large(4 * MIB - 200),
            r"more than 4,194,304 bytes, and this message needs 5,000,\d\d\d:",
            "raise stomp.max_frame_size there and restart this program, or use AMQP",
        ),
    ],
    ids=["headers", "bytes"],
)
def test_two_ends_are_a_limit(
    wire: Wire, message: Outgoing, more: Outgoing, within: Outgoing, needs: str, cure: str
) -> None:
    """After two ends a SEND above the limit is refused without being written; one below it is sent."""
    end_over(wire, message)
    assert [type(each) for each in answers(wire)] == [TransportError] * 2
    send(wire, more)
    assert wire.written == []
    refused = answers(wire)[-1]
    assert isinstance(refused, AdapterError)
    assert re.search(needs, str(refused))
    assert cure in str(refused)
    assert wire.link.receipts.all() == []
    end_over(wire, within, times=4)
    # Also on later connections.
    send(wire, message)
    assert wire.written == []


def test_one_end_may_be_chance(wire: Wire) -> None:
    """A receipt between two ends proves that the broker accepts such a frame, and every smaller one."""
    for size in (5 * MIB, 6 * MIB, 7 * MIB):
        end_over(wire, large(size), times=1)
        send(wire, large(size))
        wire.answer_last()
        assert answers(wire)[-1] is None
        wire.written.clear()
    end_over(wire, large(7 * MIB - 10), times=3)
    # Only a larger one may be too large.
    end_over(wire, large(8 * MIB))
    send(wire, large(8 * MIB))
    assert wire.written == []
    assert re.search(
        r"more than 7,340,\d\d\d bytes, and this message needs 8,388,\d\d\d", str(answers(wire)[-1])
    )
    send(wire, large(7 * MIB - 10))
    assert wire.commands() == [b"SEND"]


def test_several_frames_of_one_connection_are_one_end(wire: Wire) -> None:
    """Two unconfirmed dead letters on one connection count as one end."""
    send(wire, wide(101))
    send(wire, wide(102))
    end(wire)
    send(wire, wide(101))
    assert wire.commands() == [b"SEND"]


def test_an_end_over_something_else_proves_nothing(wire: Wire) -> None:
    """An end with an ERROR, or by missing heart-beats, proves nothing: RabbitMQ sends none for a large frame."""
    for _ in range(3):
        send(wire, wide(101))
        end(wire, "the broker's heart-beats stopped", by_broker=False)
        send(wire, wide(101))
        wire.link.on_error(Frame("ERROR", {"message": "access_refused", "version": "1.2"}, b"denied"))
        end(wire)
    send(wire, wide(101))
    assert wire.commands() == [b"SEND"]


def test_a_refusal_of_the_broker_is_no_end(wire: Wire) -> None:
    """A refused SEND does not count: the broker has read the frame, and may accept the next one."""
    for _ in range(3):
        send(wire, wide(101))
        receipt = wire.written[-1].partition(b"\nreceipt:")[2].partition(b"\n")[0].decode()
        answer = wire.link.receipts.take(receipt)
        assert answer is not None
        answer(AdapterError("the queue is full"))
        end(wire)
    send(wire, wide(101))
    assert wire.commands() == [b"SEND"]


def test_one_limit_is_not_taken_for_the_other(wire: Wire) -> None:
    """Ends because of frames above both limits prove nothing about frames above one of them."""
    both = Outgoing("queue://q", b"x" * 5 * MIB, headers=wide(110).headers)
    end_over(wire, both)
    send(wire, both)
    assert wire.written == []
    for message in (wide(110), large(5 * MIB)):
        send(wire, message)
    assert wire.commands() == [b"SEND"] * 2
    end(wire)
    send(wire, wide(110))
    end(wire)
    send(wire, wide(110))
    assert wire.written == []


def test_headers_of_one_name_count_once(wire: Wire) -> None:
    """Headers with the same name count as one, as the broker counts them: a group may be written twice."""
    end_over(wire, wide(101))
    headers = {**wide(98).headers, "JMSXGroupID": "g"}
    send(wire, Outgoing("queue://q", b"x", headers=headers, group="g"))
    assert wire.commands() == [b"SEND"]
    assert wire.written[0].partition(b"\n\n")[0].count(b"\n") == 100
    send(wire, Outgoing("queue://q", b"x", headers={**headers, "one": "1", "two": "2"}, group="g"))
    assert len(wire.written) == 2 - 1 + (b"\none:1" in wire.written[-1])


def test_a_dead_letter_is_refused_for_good(wire: Wire) -> None:
    """A dead letter that is too large can never be written: its message is set aside, and not suspected."""
    for _ in range(2):
        send(wire, wide(101))
        end(wire)
    wire.adapter.execute((Subscribe(1, "queue://orders", window=10),))
    wire.link._messages([(b"MESSAGE\nsubscription:TOKEN-1\ndestination:/queue/orders\nack:a@@b@@1", b"x")])
    (arrived,) = [event for event in wire.events if isinstance(event, Arrived)]
    (delivery,) = arrived.deliveries
    wire.adapter.execute((Forward(delivery, wide(110), Cause("bad"), 1),))
    confirmed = wire.events[-1]
    assert isinstance(confirmed, Confirmed)
    assert confirmed.final
    assert isinstance(confirmed.error, AdapterError)
    assert wire.link.disconnect_cause.suspect == (None, None)
    assert b"SEND" not in wire.commands()


def test_a_transaction_is_refused_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused transaction writes no frame, and no request waits for an answer."""
    wire = Wire(monkeypatch, StompClassic())
    bad = Outgoing("queue://q", b"x", headers={"h": "v" * 11_000})
    for _ in range(2):
        wire.adapter.execute((Commit(1, [], [bad]),))
        assert wire.commands() == [b"BEGIN", b"SEND"]
        wire.link.on_error(Frame("ERROR", {"message": "The maximum header length was exceeded"}, b""))
        end(wire)
    wire.adapter.execute((Commit(1, [], [Outgoing("queue://q", b"x"), bad]),))
    assert wire.written == []
    assert len(answers(wire)) == 3
    assert "more than 10,241 bytes in one header, and this message needs 11,0" in str(answers(wire)[-1])
    assert wire.link.receipts.all() == []


@pytest.mark.parametrize("limit", ["frame size", "command length"])
def test_classic_says_so(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    """Classic's ERROR names the limit, and no request; it may be lost. An end with another ERROR proves nothing."""
    wire = Wire(monkeypatch, StompClassic())
    for text in ("a", f"The maximum {limit} was exceeded", "b", ""):
        send(wire, large(11 * MIB))
        assert wire.commands() == [b"SEND"]
        if text:
            wire.link.on_error(Frame("ERROR", {"message": text}, b""))
        end(wire)
    send(wire, large(11 * MIB))
    assert wire.written == []
    assert "raise wireFormat.maxFrameSize" in str(answers(wire)[-1])


def test_a_broker_without_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker without limits gets every SEND: Artemis accepts all that fit its memory, or answers with an ERROR."""
    wire = Wire(monkeypatch, StompArtemis())
    end_over(wire, large(5 * MIB), times=4)


def test_a_connection_that_is_lost_meanwhile(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that is lost between the making of a frame and its check answers each request once."""

    def send_and_lose() -> None:
        made = wire.link.receipts.expect

        def lost(*arguments: Any) -> tuple[str, str]:
            receipt = made(*arguments)
            wire.link.lost(CLOSED)
            return receipt

        with monkeypatch.context() as patch:
            patch.setattr(wire.link.receipts, "expect", lost)
            send(wire, wide(101))
        wire.again()

    send_and_lose()
    end_over(wire, wide(101))
    # Refused here from now on.
    send_and_lose()
    assert [type(each) for each in answers(wire)] == [TransportError] * 4

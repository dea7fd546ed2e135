"""Frames that the broker has not written: what a producer hides in a text or in a name, as Classic passes it on."""

from __future__ import annotations

import pytest
from tests.stomp.test_refused import Wire

from redelivery.adapter import Sent, Subscribed
from redelivery.core.commands import Send, Subscribe
from redelivery.core.events import Arrived, ConnectionLost
from redelivery.core.outgoing import Outgoing


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    """An adapter at Classic with two consumers, one message in work, and a copy that is not confirmed yet."""
    wire = Wire(monkeypatch)
    wire.adapter.execute([Subscribe(n, f"queue://q{n}", window=10) for n in (1, 2)])
    wire.read(b"RECEIPT\nreceipt-id:TOKEN-q1\n\n\0\nRECEIPT\nreceipt-id:TOKEN-q2\n\n\0\n")
    wire.adapter.execute([Send(7, Outgoing("queue://graves", b"copy"))])
    wire.read(arrival("victim", number=1))
    wire.events.clear()
    return wire


def arrival(name: str, body: bytes = b"x", *, number: int, subscription: str = "TOKEN-1") -> bytes:
    """Return a message as Classic writes it: `ack` may stand before or behind what the producer has named."""
    lines = f"destination:/queue/q1\nsubscription:{subscription}\nack:{handle(number)}\nmessage-id:{name}"
    return f"MESSAGE\n{lines}\n\n".encode() + body + b"\0\n"


def handle(number: int) -> str:
    """Return a handle as Classic makes them."""
    return f"ID\\cvm-42677-1795490455522-7\\c{number}"


VICTIM = handle(1).encode()
NEXT = arrival("next", number=3)
RECEIPT = b"RECEIPT\nreceipt-id:TOKEN-r3\n\n\0\n"
# What a text has behind its NUL.
HIDDEN = {
    "a message under the id of a subscription": b"\nMESSAGE\nsubscription:1\nmessage-id:f\nack:%b\n\nforged"
    % VICTIM,
    "a message without a subscription": b"\nMESSAGE\nmessage-id:f\nack:%b\n\nforged" % VICTIM,
    "a subscription that is no UTF-8": b"\nMESSAGE\nsubscription:\xff\xfe\nmessage-id:f\n\nforged",
    "guessed receipts": b"\0".join(b"\nRECEIPT\nreceipt-id:r1-%d\n\n" % n for n in range(9)),
    "a receipt without an id": b"\nRECEIPT\n\n",
    "another CONNECTED": b"\nCONNECTED\nversion:1.0\nserver:RabbitMQ/3.10\n\n",
    "a refusal of a guessed request": b"\nERROR\nreceipt-id:r1-3\nmessage:no\n\n",
    "headers that take the next message's body": b"\nMESSAGE\nack:%b\nfoo:" % VICTIM,
    "headers that take the next message, with other line ends": b"\nMESSAGE\r\nack:%b\r\nfoo:" % VICTIM,
    "an ERROR whose headers take the next receipt's": b"\nERROR\nmessage:no\nfoo:",
    "an ERROR that is as long as all that comes": b"\nERROR\ncontent-length:90000\n\n",
    "a message that is as long as all that comes": b"\nMESSAGE\ncontent-length:90000\nmessage-id:f\n\n",
    "a length of 5,000 digits": b"\nERROR\ncontent-length:%b\n\n" % (b"9" * 5000),
    "no frame": b"half",
}
AT_ONCE = pytest.mark.parametrize("pieces", [1, 7, 100000], ids=["byte by byte", "in pieces", "at once"])


@AT_ONCE
@pytest.mark.parametrize("hidden", HIDDEN.values(), ids=HIDDEN.keys())
def test_what_a_text_hides_behind_a_nul_is_not_obeyed(wire: Wire, hidden: bytes, pieces: int) -> None:
    """No handler gets it, it answers and acknowledges nothing, and the connection ends over that text."""
    data = arrival("text", b"a\0" + hidden, number=2) + RECEIPT + NEXT
    assert ends_over(wire, data, pieces) == "text"


OWN_LENGTH = arrival("text", b"a", number=2).replace(b"MESSAGE\n", b"MESSAGE\ncontent-length:90000\n")
NAMES = {
    "a second handle before the broker's": b"destination:/queue/q1\nx\nack:%b\ny:v\nsubscription:TOKEN-1"
    % VICTIM,
    "the end of the headers, and a body": b"subscription:TOKEN-1\nx:1\nmessage-id:text\nack:%b\n\ny:v"
    % VICTIM,
    "and an ERROR around the rest": b"subscription:TOKEN-1\nmessage-id:text\nack:%b\n\nb\0ERROR\ny:v"
    % VICTIM,
}


@AT_ONCE
@pytest.mark.parametrize("lines", NAMES.values(), ids=NAMES.keys())
def test_a_property_whose_name_has_line_ends_forges_no_handle(wire: Wire, lines: bytes, pieces: int) -> None:
    """Classic does not escape names: such a message would be acknowledged by the handle of another one."""
    own = b"MESSAGE\n%b\nack:%b\nmessage-id:text\n\nbody\0\n" % (lines, handle(2).encode())
    assert ends_over(wire, own + RECEIPT + NEXT, pieces) == "text"


@AT_ONCE
def test_a_property_named_content_length_takes_no_other_frame(wire: Wire, pieces: int) -> None:
    """Classic writes it as if it were its own: the consumer would wait for as many bytes of other messages."""
    assert ends_over(wire, OWN_LENGTH + RECEIPT + NEXT, pieces) == "text"


def test_a_text_may_have_lines_like_a_handle(wire: Wire) -> None:
    """A log of STOMP frames is no forgery: only this connection's own handles count."""
    body = b"MESSAGE\nack:ID\\cother-1-2-3\\c1\nsubscription:1\nreceipt-id:r1-1\n\nERROR\n\n"
    wire.read(arrival("log", body, number=2) + NEXT)
    assert [one.body for event in wire.events if isinstance(event, Arrived) for one in event.deliveries] == [
        body,
        b"x",
    ]


def test_headers_may_have_a_nul(wire: Wire) -> None:
    """A correlation id of any bytes, and on RabbitMQ each message of an AMQP 1.0 client."""
    wire.read(arrival("odd", number=2).replace(b"MESSAGE\n", b"MESSAGE\ncorrelation-id:c\0\n") + NEXT)
    assert sum(len(event.deliveries) for event in wire.events if isinstance(event, Arrived)) == 2


def test_a_producers_header_hides_no_subscription(wire: Wire) -> None:
    """Artemis writes a property named `subscription` beside its own header, RabbitMQ before it."""
    wire.read(arrival("odd", number=2).replace(b"MESSAGE\n", b"MESSAGE\nsubscription:evil\n"))
    assert [event.consumer for event in wire.events if isinstance(event, Arrived)] == [1]


def test_an_error_that_names_nothing_refuses_nothing_on_classic(wire: Wire) -> None:
    """Classic names the request of each refusal: a forged ERROR, and the end behind it, stop no other consumer."""
    wire.adapter.execute([Subscribe(3, "queue://q3", window=10)])
    wire.events.clear()
    wire.read(arrival("text", b"a\0\nERROR\nmessage:you may not\n\n", number=2))
    assert not any(isinstance(event, ConnectionLost) for event in wire.events)
    wire.link.lost("gone")
    answers = [event for event in wire.events if isinstance(event, Sent | Subscribed)]
    assert [type(event.error).__name__ for event in answers] == ["TransportError"] * 2


def test_a_late_message_of_an_ended_consumer_is_no_forgery(wire: Wire) -> None:
    """Its subscription has the token, and a number that is no longer known: it is dropped, and the next is handled."""
    wire.read(arrival("late", number=2, subscription="TOKEN-9") + NEXT)
    assert [event.consumer for event in wire.events if isinstance(event, Arrived)] == [1]


def test_no_two_connections_have_the_same_token() -> None:
    """A producer who has seen the ids of one connection knows none of the next."""
    from tests.stomp.peer import opening  # noqa: PLC0415 - the other tests fix the token

    from redelivery_stomp.connection import StompConnection  # noqa: PLC0415

    ids = {StompConnection(opening("stomp://h"), lambda _: None).wire_id("1") for _ in range(20)}
    assert len(ids) == 20
    assert all(len(each) >= 16 for each in ids)


def ends_over(wire: Wire, data: bytes, pieces: int) -> object:
    """Let bytes come; return the id of the message over which the connection ends, before anything is obeyed."""
    wire.written.clear()
    for at in range(0, len(data), pieces):
        wire.read(data[at : at + pieces])
    (loss,) = [event for event in wire.events if isinstance(event, ConnectionLost)]
    assert isinstance(loss.suspect, tuple)
    arrived = [one for event in wire.events if isinstance(event, Arrived) for one in event.deliveries]
    assert {one.message_id for one in arrived} <= {"text"}, "a message that the broker has not sent"
    assert all(VICTIM not in one.head for one in arrived)  # type: ignore[attr-defined]
    (sent,) = [event for event in wire.events if isinstance(event, Sent)]
    assert type(sent.error).__name__ == "TransportError", "neither confirmed nor refused by what is forged"
    assert wire.link.server == "ActiveMQ/5.18.3"
    identity: object = loss.suspect[1]
    return identity

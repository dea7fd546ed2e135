"""Frames that the broker did not write: a producer hid them in a text or in a name, and Classic passed them on."""

from __future__ import annotations

import pytest
from tests.stomp.peer import ScriptedPeer
from tests.stomp.test_refused import Wire

import redelivery
from redelivery.adapter import Browsed, Sent, Subscribed
from redelivery.core.commands import Send, Subscribe
from redelivery.core.events import Arrived, ConnectionLost
from redelivery.core.outgoing import Outgoing


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    """An adapter at Classic with two consumers, one unsettled message, and a copy that is not confirmed yet."""
    wire = Wire(monkeypatch)
    wire.adapter.execute([Subscribe(n, f"queue://q{n}", window=10) for n in (1, 2)])
    wire.read(b"RECEIPT\nreceipt-id:TOKEN-q1\n\n\0\nRECEIPT\nreceipt-id:TOKEN-q2\n\n\0\n")
    wire.adapter.execute([Send(7, Outgoing("queue://graves", b"copy"))])
    wire.read(arrival("victim", number=1))
    wire.events.clear()
    return wire


def arrival(name: str, body: bytes = b"x", *, number: int, subscription: str = "TOKEN-1") -> bytes:
    """Return a message as Classic writes it: `ack` may come before or after the producer's properties."""
    lines = f"destination:/queue/q1\nsubscription:{subscription}\nack:{handle(number)}\nmessage-id:{name}"
    return f"MESSAGE\n{lines}\n\n".encode() + body + b"\0\n"


def handle(number: int) -> str:
    """Return a handle as Classic makes it."""
    return f"ID\\cvm-42677-1795490455522-7\\c{number}"


VICTIM = handle(1).encode()
NEXT = arrival("next", number=3)
RECEIPT = b"RECEIPT\nreceipt-id:TOKEN-r3\n\n\0\n"
# Bytes behind the NUL of a text.
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
    """A frame behind a NUL reaches no handler, answers and acknowledges nothing, and ends the connection."""
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
    """A property name with line ends, which Classic does not escape, cannot forge the handle of a message."""
    own = b"MESSAGE\n%b\nack:%b\nmessage-id:text\n\nbody\0\n" % (lines, handle(2).encode())
    assert ends_over(wire, own + RECEIPT + NEXT, pieces) == "text"


@AT_ONCE
def test_a_property_named_content_length_takes_no_other_frame(wire: Wire, pieces: int) -> None:
    """A property `content-length`, which Classic writes like its own header, makes no body of other messages' bytes."""
    assert ends_over(wire, OWN_LENGTH + RECEIPT + NEXT, pieces) == "text"


def test_a_text_may_have_lines_like_a_handle(wire: Wire) -> None:
    """A text with STOMP frames is not a forgery: only this connection's own handles count."""
    body = b"MESSAGE\nack:ID\\cother-1-2-3\\c1\nsubscription:1\nreceipt-id:r1-1\n\nERROR\n\n"
    wire.read(arrival("log", body, number=2) + NEXT)
    assert [one.body for event in wire.events if isinstance(event, Arrived) for one in event.deliveries] == [
        body,
        b"x",
    ]


def test_headers_may_have_a_nul(wire: Wire) -> None:
    """Headers may have a NUL: in a correlation id, and on RabbitMQ in each message of an AMQP 1.0 client."""
    wire.read(arrival("odd", number=2).replace(b"MESSAGE\n", b"MESSAGE\ncorrelation-id:c\0\n") + NEXT)
    assert sum(len(event.deliveries) for event in wire.events if isinstance(event, Arrived)) == 2


def test_a_producers_header_hides_no_subscription(wire: Wire) -> None:
    """A property named `subscription` hides no header: Artemis writes it after its own, RabbitMQ before it."""
    wire.read(arrival("odd", number=2).replace(b"MESSAGE\n", b"MESSAGE\nsubscription:evil\n"))
    assert [event.consumer for event in wire.events if isinstance(event, Arrived)] == [1]


def test_an_error_that_names_nothing_refuses_nothing_on_classic(wire: Wire) -> None:
    """An ERROR without a request refuses nothing on Classic: it may be forged, and stops no other consumer."""
    wire.adapter.execute([Subscribe(3, "queue://q3", window=10)])
    wire.events.clear()
    wire.read(arrival("text", b"a\0\nERROR\nmessage:you may not\n\n", number=2))
    assert not any(isinstance(event, ConnectionLost) for event in wire.events)
    wire.link.lost("gone")
    answers = [event for event in wire.events if isinstance(event, Sent | Subscribed)]
    assert [type(event.error).__name__ for event in answers] == ["TransportError"] * 2


def test_a_late_message_of_an_ended_consumer_is_no_forgery(wire: Wire) -> None:
    """A late message of an ended consumer, whose subscription has the token, is dropped; the next is handled."""
    wire.read(arrival("late", number=2, subscription="TOKEN-9") + NEXT)
    assert [event.consumer for event in wire.events if isinstance(event, Arrived)] == [1]


def test_no_two_connections_have_the_same_token() -> None:
    """Each connection has a new token: a producer that saw the ids of one cannot know those of the next."""
    from tests.stomp.peer import opening  # noqa: PLC0415 - the other tests fix the token

    from redelivery_stomp.connection import StompConnection  # noqa: PLC0415

    ids = {StompConnection(opening("stomp://h"), lambda _: None).wire_id("1") for _ in range(20)}
    assert len(ids) == 20
    assert all(len(each) >= 16 for each in ids)


def ends_over(wire: Wire, data: bytes, pieces: int) -> object:
    """Make bytes arrive; return the id of the message that ends the connection, before any frame takes effect."""
    wire.written.clear()
    for at in range(0, len(data), pieces):
        wire.read(data[at : at + pieces])
    (loss,) = [event for event in wire.events if isinstance(event, ConnectionLost)]
    assert isinstance(loss.suspect, tuple)
    assert isinstance(loss.suspect[0], tuple)
    arrived = [one for event in wire.events if isinstance(event, Arrived) for one in event.deliveries]
    assert {one.message_id for one in arrived} <= {"text"}, "a message that the broker has not sent"
    assert all(VICTIM not in one.head for one in arrived)  # type: ignore[attr-defined]
    (sent,) = [event for event in wire.events if isinstance(event, Sent)]
    assert type(sent.error).__name__ == "TransportError", "neither confirmed nor refused by what is forged"
    assert wire.link.server == "ActiveMQ/5.18.3"
    identity: object = loss.suspect[0][1]
    return identity


def shown(name: str, *lines: str, body: bytes = b"x") -> bytes:
    """Return a browsed message as Classic writes it: without a handle, unless a property has that name."""
    head = "\n".join(
        ["destination:/queue/dlq", *lines, "subscription:TOKEN-b9", "priority:4", f"message-id:{name}"]
    )
    return f"MESSAGE\n{head}\n\n".encode() + body + b"\0\n"


END = b"MESSAGE\nbrowser:end\ndestination:/queue/dlq\nmessage-id:0\nsubscription:TOKEN-b9\n\n\0\n"


@pytest.fixture
def looking(wire: Wire) -> Wire:
    """The same adapter with a queue that is browsed."""
    wire.adapter.execute([Subscribe(9, "queue://dlq", window=10, browse=True, existing=True)])
    wire.events.clear()
    return wire


@AT_ONCE
def test_what_is_shown_has_no_handle_to_be_proven(looking: Wire, pieces: int) -> None:
    """A browsed message needs no handle; a property `ack` in it, even another message's handle, does no harm."""
    letters = b"".join(shown(f"{n}", f"ack:{handle(1 + n // 2)}") for n in range(4))
    data = letters + arrival("next", number=3) + arrival("own", number=2)
    for at in range(0, len(data), pieces):
        looking.read(data[at : at + pieces])
    arrived = [one for event in looking.events if isinstance(event, Arrived) for one in event.deliveries]
    assert sorted(str(one.message_id) for one in arrived) == ["0", "1", "2", "3", "next", "own"]
    assert not looking.link.transport.fault
    # A message that is not browsed must still prove its handle.
    looking.read(arrival("again", number=3))
    assert looking.link.transport.fault


def test_a_letters_property_is_no_message_in_work(looking: Wire) -> None:
    """A handle in a dead letter's property does not make the message with that handle a forgery."""
    looking.read(shown("1", f"ack:{handle(5)}") + shown("2", f"ack:{handle(6)}"))
    looking.read(arrival("own", number=5) + arrival("other", number=6))
    assert not looking.link.transport.fault
    assert sum(len(event.deliveries) for event in looking.events if isinstance(event, Arrived)) == 4


@pytest.mark.parametrize(
    "letter",
    [
        shown("1", "browser:end"),
        shown("0", "browser:end", body=b""),
        shown("0", "browser:end", "x:y", body=b"").replace(b"priority:4", b"priority:0"),
    ],
    ids=["a property", "and no body", "and another priority"],
)
def test_no_property_is_the_end_of_what_is_shown(looking: Wire, letter: bytes) -> None:
    """A property cannot end a browse: only Classic's own end has no `priority` header. No dead letter is missed."""
    looking.read(letter + shown("2"))
    assert not any(isinstance(event, Browsed) for event in looking.events)
    assert sum(len(event.deliveries) for event in looking.events if isinstance(event, Arrived)) == 2
    looking.read(END)
    assert [event.consumer for event in looking.events if isinstance(event, Browsed)] == [9]


def test_a_frame_with_the_headers_of_a_message_is_no_answer(looking: Wire) -> None:
    """A frame with a message's headers is no answer: names with line ends and NULs could make an ERROR of a message."""
    looking.read(END[:-1] + b"ERROR\nx:v\npriority:4\n\nbody\0\n")
    assert looking.link.transport.fault


@pytest.mark.parametrize("length", ["99999", "0", "abc"])
def test_the_message_that_ends_a_look_is_named(looking: Wire, length: str) -> None:
    """The error of a browse names the message that ended it, and a remedy; its id may have any length."""
    looking.read(shown("odd" * 100, f"content-length:{length}") + shown("2") + END)
    (loss,) = [event for event in looking.events if isinstance(event, ConnectionLost)]
    assert "in the message oddodd" in str(loss.error)
    assert "from queue://dlq; use AMQP, which delivers it like any other" in str(loss.error)
    assert str(loss.error).endswith("redelivery dlq redrive AMQP-URI dlq --id ID --to PLACE"), (
        "the id is too long"
    )
    assert len(str(loss.error)) < 500


HALF = b"a\0\nMESSAGE\nfoo:bar"


def test_a_text_that_ends_in_half_a_frame_holds_nothing_up(wire: Wire) -> None:
    """A text that ends in a part of a frame is the culprit after `STARVED` seconds without a byte."""
    wire.read(arrival("text", HALF, number=2)[:-2])
    assert not wire.events
    wire.link.transport.starve()
    wire.link.lost("the connection was closed by the other side")
    (loss,) = [event for event in wire.events if isinstance(event, ConnectionLost)]
    assert "in the message text from queue://q1" in str(loss.error)
    assert not any(isinstance(event, Arrived) for event in wire.events)


def test_a_frame_that_goes_on_in_time_is_waited_for(wire: Wire) -> None:
    """A frame that continues in time is read: only a silent partial frame ends the connection."""
    wire.read(arrival("text", number=2) + NEXT[:30])
    wire.read(NEXT[30:])
    wire.link.transport.starve()
    assert not wire.link.transport.fault
    assert sum(len(event.deliveries) for event in wire.events if isinstance(event, Arrived)) == 2


def test_a_pause_of_seconds_in_a_frame_accuses_nobody(wire: Wire) -> None:
    """A pause of seconds within a frame accuses no message: a broker's garbage collection makes one, too."""
    assert wire.link.transport._starved._limit >= 10


def test_a_consumer_without_credit_stops_over_such_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer without credit ends the third time that such a text arrives, after which no byte follows."""
    monkeypatch.setattr("redelivery_stomp.transport.STARVED", 0.05)

    def script(identity: bytes) -> list[bytes]:
        return [arrival("text", HALF, number=1, subscription=identity.decode())[:-2]]

    with ScriptedPeer(script) as peer, redelivery.connect(peer.uri) as connection:
        consumer = connection.consumer("q1", credit=1)
        with pytest.raises(redelivery.AdapterError, match="3 times"):
            consumer.receive(timeout=30)
        assert peer.connections >= 3

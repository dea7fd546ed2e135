"""A broker that writes nonsense: memory is limited, nothing hangs, and a consumer stops with a reason."""

from __future__ import annotations

import itertools
import logging
import socket
import threading
from typing import TYPE_CHECKING

import pytest
from tests.eventually import eventually
from tests.stomp.peer import ScriptedPeer
from tests.stomp.test_refused import Wire

import redelivery
from redelivery import TransportError
from redelivery.core.commands import Accept, Subscribe
from redelivery.core.events import Arrived, ConnectionLost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

LONG = 30.0  # seconds: for events that follow at once
BOUNDS = "&redelivery.maximumHeaderBytes=8192&redelivery.maximumMessageBytes=65536"
HEADERS = "more than 8192 bytes of headers (redelivery.maximumHeaderBytes)"
BODY = "more than 65536 bytes (redelivery.maximumMessageBytes)"
BROKEN = "longer than its frame says"
FOREIGN = "that the broker did not write"


def quick(peer: ScriptedPeer) -> str:
    """Return a URI with a reconnect at once."""
    return f"failover:({peer.uri})?initialReconnectDelay=1&maxReconnectDelay=1"


def message(identity: bytes, name: bytes, headers: bytes = b"", body: bytes = b"x") -> bytes:
    """Return a message as Classic writes it."""
    lines = b"subscription:%b\ndestination:/queue/q\nmessage-id:%b\nack:%b\n" % (identity, name, name)
    return b"MESSAGE\n%b%b\n%b\0\n" % (lines, headers, body)


def endless(piece: bytes) -> Iterable[bytes]:
    """Return far more bytes than any limit."""
    return itertools.repeat(piece * 64, 10_000)


CASES: dict[str, tuple[Callable[[bytes], Iterable[bytes]], str, str]] = {
    "a length of 5,000 digits": (
        lambda i: [message(i, b"m", b"content-length:%b\n" % (b"9" * 5000))], "m", BROKEN),
    "an ERROR of such a length": (
        lambda i: [message(i, b"m"), b"ERROR\ncontent-length:%b\n\n\0" % (b"9" * 5000)], "m", BROKEN),
    "a length that is never sent": (
        lambda i: [message(i, b"m", b"content-length:999999999999\n")], "m", BODY),
    "a body without an end": (
        lambda i: [message(i, b"m")[:-3], *endless(b"x" * 1024)], "m", BODY),
    "headers without an end": (
        lambda i: [message(i, b"m"), b"MESSAGE\n", *endless(b"k:%b\n" % (b"x" * 1000))], "m", HEADERS),
    "an ERROR without an end": (
        lambda i: [message(i, b"m"), b"ERROR\nmessage:x\n\n", *endless(b"x" * 1024)], "m", BODY),
    "headers that are too long": (
        lambda i: [message(i, b"m", b"k:%b\n" % (b"x" * 9000))], "m", HEADERS),
    "a subscription that is no UTF-8": (
        lambda i: [message(i, b"m"), message(b"\xff\xfe", b"n"), b"GARBAGE\nk:v\n\n\0"], "m", FOREIGN),
    "a message without a subscription": (
        lambda i: [message(i, b"m"), b"MESSAGE\nmessage-id:1\nack:1\n\nx\0"], "m", FOREIGN),
    "a receipt without an id": (
        lambda i: [message(i, b"m"), b"RECEIPT\n\n\0"], "m", FOREIGN),
    "receipts that were not asked for": (
        lambda i: [message(i, b"m"), *(b"RECEIPT\nreceipt-id:r1-%d\n\n\0" % n for n in range(50))], "m", FOREIGN),
    "another CONNECTED": (
        lambda i: [message(i, b"m"), b"CONNECTED\nversion:1.0\nserver:RabbitMQ/3\n\n\0"], "m", FOREIGN),
    "no frame": (
        lambda i: [message(i, b"m"), b"GARBAGE\nk:v\n\n\0"], "m", BROKEN),
    "a message twice": (
        lambda i: [message(i, b"m") * 2], "m", FOREIGN),
}  # fmt: skip


@pytest.mark.parametrize(("script", "culprit", "reason"), CASES.values(), ids=CASES.keys())
def test_what_ends_three_connections_stops_the_consumer(
    script: Callable[[bytes], Iterable[bytes]], culprit: str, reason: str
) -> None:
    """A consumer stops after three lost connections, with the reason and the message, which is not acknowledged."""
    with ScriptedPeer(script) as peer, redelivery.connect(quick(peer) + BOUNDS) as connection:
        consumer = connection.consumer("q")
        error = stopped(consumer)
        assert reason in error
        assert f"(queue://q: {culprit})" in error
        assert "3 times" in error
        assert peer.connections >= 3
        assert peer.settled == []


def test_a_message_without_a_handle_is_never_acknowledged_with_another_header() -> None:
    """Settling a message without a handle ends the connection; the third time its consumer stops."""

    def script(identity: bytes) -> list[bytes]:
        return [b"MESSAGE\nsubscription:%b\ndestination:/queue/q\nmessage-id:m\n\nx\0\n" % identity]

    with ScriptedPeer(script) as peer, redelivery.connect(quick(peer)) as connection:
        error = stopped(connection.consumer("q"), accept=True)
        assert "without a usable header to acknowledge it by" in error
        assert peer.settled == []


@pytest.mark.parametrize(
    "lines", ["", "ack:", "ack:a\0b", "ack:a\rb"], ids=["none", "empty", "NUL", "line end"]
)
def test_a_handle_that_no_frame_can_carry_ends_the_connection(
    monkeypatch: pytest.MonkeyPatch, lines: str
) -> None:
    """A handle that no frame can carry ends the connection; the other messages are acknowledged."""
    wire = Wire(monkeypatch)
    wire.adapter.execute([Subscribe(1, "queue://q", window=10)])
    odd = (
        f"MESSAGE\nsubscription:TOKEN-1\nmessage-id:odd\n{lines}\n".encode().replace(b"\n\n", b"\n")
        + b"\nx\0"
    )
    wire.read(message(b"TOKEN-1", b"a") + odd + message(b"TOKEN-1", b"b"))
    wire.written.clear()
    deliveries = [one for event in wire.events if isinstance(event, Arrived) for one in event.deliveries]
    wire.adapter.execute([Accept(deliveries)])
    assert wire.written == [b"ACK\nid:a\n\n", b"ACK\nid:b\n\n"]
    wire.link.lost("the connection was closed by the other side")
    (loss,) = [event for event in wire.events if isinstance(event, ConnectionLost)]
    assert isinstance(loss.suspect, tuple)
    assert isinstance(loss.suspect[0], tuple)
    assert loss.suspect[0][1] == "odd"


def test_rubbish_without_a_message_before_it_only_ends_the_connection() -> None:
    """Rubbish without a message before it accuses no message: the consumer continues on the next connection."""
    with (
        ScriptedPeer(lambda _: [b"GARBAGE\nk:v\n\n\0"]) as peer,
        redelivery.connect(quick(peer)) as connection,
    ):
        consumer = connection.consumer("q")
        eventually(lambda: peer.connections > 3)
        assert consumer.receive(timeout=0) is None


def test_nobody_waits_for_a_goodbye_on_a_connection_that_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A close does not wait for the receipt of DISCONNECT after the end of the stream."""
    wire = Wire(monkeypatch)
    closing = threading.Thread(target=wire.link.close, args=(600.0,))
    closing.start()
    eventually(lambda: wire.written)
    wire.link.lost("the connection was closed by the other side")
    closing.join(60)
    assert not closing.is_alive()


@pytest.mark.parametrize("broken", ["_explained", "disconnect_cause"])
def test_a_loss_is_reported_even_if_it_cannot_be_explained(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    """A loss is reported to the connection and to each request even if finding its reason raises, which is logged."""
    wire = Wire(monkeypatch)
    wire.adapter.execute([Subscribe(1, "queue://q", window=10)])
    answers: list[object] = []

    def fails(error: object) -> None:
        raise ZeroDivisionError

    wire.link.receipt(fails)
    wire.link.receipt(answers.append)
    monkeypatch.setattr(wire.link, broken, None)
    wire.link.lost("gone")
    (loss,) = [event for event in wire.events if isinstance(event, ConnectionLost)]
    assert "gone" in str(loss.error)
    assert [type(answer) for answer in answers] == [TransportError]
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 2


def test_a_fault_on_the_reading_thread_ends_the_connection_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An exception on the reading thread ends the connection with its reason; stomp.py would drop it."""
    wire = Wire(monkeypatch)
    wire.adapter.execute([Subscribe(1, "queue://q", window=10)])
    transport = wire.link.transport

    def fails(_: object) -> None:
        raise ZeroDivisionError("no")

    monkeypatch.setattr(transport, "_messages", fails)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        transport.socket, transport.running = ours, True
        theirs.sendall(message(b"TOKEN-1", b"m"))
        assert transport.receive() == b""
        transport.cleanup()
    assert not transport.running
    wire.link.lost("the connection was closed by the other side")
    (loss,) = [event for event in wire.events if isinstance(event, ConnectionLost)]
    assert "cannot read: ZeroDivisionError: no" in str(loss.error)
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


def stopped(consumer: redelivery.Consumer, *, accept: bool = False) -> str:
    """Receive until the consumer ends; return the reason."""
    try:
        while (received := consumer.receive(timeout=LONG)) is not None:
            if accept:
                received.accept()
    except redelivery.AdapterError as error:
        return str(error)
    raise AssertionError("it did not stop")

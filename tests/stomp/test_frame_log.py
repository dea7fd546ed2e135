"""The wire log: STOMP frames, never a password."""

from __future__ import annotations

import logging

import pytest
from tests.stomp.peer import FrozenPeer

import redelivery
from redelivery_stomp.frames import frame, show_answer, show_messages, show_written


@pytest.fixture
def wire(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """The log with the wire log at DEBUG."""
    caplog.set_level(logging.DEBUG, "redelivery.wire")
    return caplog


def told(log: pytest.LogCaptureFixture) -> list[str]:
    """Return the lines of the wire log."""
    return [record.getMessage() for record in log.records if record.name == "redelivery.wire"]


def test_a_session_shows_its_frames_without_credentials(wire: pytest.LogCaptureFixture) -> None:
    """Log-in and SEND are shown; the user's name, the password, a secret header and the end of a body are not."""
    with FrozenPeer() as peer, redelivery.connect(peer.uri.replace("://", "://bob:hunter2@")) as connection:
        with pytest.raises(redelivery.TransportError):
            connection.send("orders", "x" * 100 + "tail", headers={"apiToken": "s3cret", "n": 1}, timeout=0)
        connection.close(0)  # no broker answers
    lines = told(wire)
    assert lines[0].startswith("-> CONNECT accept-version=1.1,1.2 host=/ ")
    assert "login=*** passcode=***" in lines[0]
    assert "<- CONNECTED version=1.2 server=ActiveMQ/5.18.3 heart-beat=0,0" in lines
    [sent] = [line for line in lines if line.startswith("-> SEND ")]
    assert "destination=/queue/orders" in sent
    assert "apiToken=***" in sent
    assert sent.endswith(f"104 bytes: {'x' * 40}…")
    text = "\n".join(lines)
    assert not [secret for secret in ("hunter2", "bob", "s3cret", "tail") if secret in text]


def test_nothing_is_shown_to_who_asks_for_all_debugging(caplog: pytest.LogCaptureFixture) -> None:
    """The root logger at DEBUG shows no frame: the wire log is enabled by the name of its logger."""
    caplog.set_level(logging.DEBUG)
    with FrozenPeer() as peer, redelivery.connect(peer.uri) as connection:
        connection.close(0)  # no broker answers
    assert told(caplog) == []


def test_each_frame_of_a_write_is_a_line(wire: pytest.LogCaptureFixture) -> None:
    """Each frame of one write has a line, also if a body has a NUL; a heart-beat has none."""
    binary = frame(b"SEND", [("destination", "/queue/a"), ("content-length", 3)], b"a\0b")
    show_written(b"\n")
    show_written(frame(b"BEGIN", [("transaction", "t")]) + binary + frame(b"COMMIT", [("transaction", "t")]))
    assert told(wire) == [
        "-> BEGIN transaction=t",
        "-> SEND destination=/queue/a content-length=3 3 bytes: a\\x00b",
        "-> COMMIT transaction=t",
    ]


def test_what_came_is_shown(wire: pytest.LogCaptureFixture) -> None:
    """A received message is shortened, and an ERROR has no text: brokers repeat the user's name in it."""
    show_messages([(b"MESSAGE\nmessage-id:1\npassword:x", b"")])
    show_answer("ERROR", {"receipt-id": "r1", "message": "bob may not"})
    assert told(wire) == ["<- MESSAGE message-id=1 password=***", "<- ERROR receipt-id=r1"]

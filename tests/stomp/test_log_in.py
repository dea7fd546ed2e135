"""Log-in with a backslash in the password: RabbitMQ reads escapes in CONNECT, the other brokers do not."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.stomp.peer import ScriptedPeer, opening

import redelivery
from redelivery import AdapterError
from redelivery.settings import Secret
from redelivery_stomp.adapter import StompAdapter
from redelivery_stomp.connection import connect_frame, not_logged_in

PASSWORD = r"a\b\n\\c"
# Escapes of STOMP 1.2.
_ESCAPES = {b"\\\\": b"\\", b"\\n": b"\n", b"\\r": b"\r", b"\\c": b":"}


def unescaped(value: bytes) -> bytes | None:
    """Return a header as RabbitMQ reads it; None: it ends the connection over this header."""
    if re.fullmatch(rb"(?:[^\\]|\\[\\nrc])*", value) is None:
        return None
    return re.sub(rb"\\[\\nrc]", lambda found: _ESCAPES[found[0]], value)


class Guarded(ScriptedPeer):
    """A broker that knows one password."""

    escapes = False

    def __init__(self, password: str) -> None:
        self.password, self.heard = password.encode(), list[bytes]()
        super().__init__(lambda _: ())

    def answer(self, frame: bytes) -> bytes | None:
        (given,) = re.findall(rb"\npasscode:([^\n]*)", frame)
        self.heard.append(given)
        read = unescaped(given) if self.escapes else given
        if read is None or read == self.password:
            return None if read is None else self.connected
        return b"ERROR\nmessage:Bad CONNECT\n\nAccess refused\0"


class RabbitPeer(Guarded):
    """One that reads escapes in CONNECT, and closes the connection over an unknown one (3.10.8, 4.3.6)."""

    connected = b"CONNECTED\nversion:1.2\nserver:RabbitMQ/4.3.6\nheart-beat:0,0\n\n\0"
    escapes = True


def uri_for(peer: ScriptedPeer, password: str) -> str:
    hidden = "".join(f"%{byte:02X}" for byte in password.encode())
    return f"{peer.uri}?jms.userName=app&jms.password={hidden}"


@pytest.mark.parametrize("password", ["a\\b", "a\\nb", "a\\\\b", "a\\", "\\c", PASSWORD])
@pytest.mark.parametrize("kind", [RabbitPeer, Guarded])
def test_a_password_with_a_backslash_logs_in(kind: type[Guarded], password: str) -> None:
    """A password with a backslash logs in, whether the broker reads escapes in CONNECT or not."""
    with kind(password) as peer:
        connection = redelivery.connect(uri_for(peer, password))
        with connection.running():
            pass
        assert len(peer.heard) == (2 if kind is RabbitPeer else 1)


def test_a_reconnect_begins_with_the_spelling_that_was_taken() -> None:
    """A reconnect begins with the spelling that the broker took: its log has one refusal, and no more."""
    doubled = PASSWORD.replace("\\", "\\\\").encode()
    adapter = StompAdapter()
    with RabbitPeer(PASSWORD) as peer:
        for _ in range(3):
            adapter.open(opening(uri_for(peer, PASSWORD)), lambda _: None)
        adapter.close(1.0)
        assert peer.heard == [PASSWORD.encode(), doubled, doubled, doubled]


def test_a_wrong_password_is_refused_as_the_broker_says() -> None:
    """A wrong password with a backslash is tried twice, and the broker's own text is the error."""
    with RabbitPeer("another") as peer:
        with pytest.raises(AdapterError, match="refused the log-in: Bad CONNECT"):
            StompAdapter().open(opening(uri_for(peer, "a\\b")), lambda _: None)
        assert len(peer.heard) == 2


@pytest.mark.parametrize("kind", [True, False, None])
def test_a_refused_log_in_says_whether_it_passes(kind: bool | None) -> None:
    """A refused log-in says whether it passes, as that of a vhost which starts, or stays refused."""
    error = not_logged_in(opening("stomp://h"), AdapterError("no", passes=kind), garbled=False, lost=False)
    assert isinstance(error, AdapterError)
    assert (str(error), error.passes) == ("stomp://h:61613: the broker refused the log-in: no", kind)


@given(st.text(st.characters(exclude_characters="\r\n\0", exclude_categories=["Cs"])))
def test_the_doubled_spelling_is_what_a_reader_of_escapes_reads_back(password: str) -> None:
    """A broker that reads escapes reads from the doubled spelling the password itself, colons included."""
    settings = replace(redelivery.parse_uri("stomp://h?jms.userName=app"), password=Secret(password))
    frame = connect_frame(settings, (0, 0), doubled=True)
    (written,) = re.findall(rb"\npasscode:([^\n]*)", frame)
    assert unescaped(written) == password.encode()

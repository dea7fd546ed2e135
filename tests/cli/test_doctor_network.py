"""Network probes of the doctor, against small servers in this process."""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from redelivery import ConfigurationError
from redelivery.cli.checks import network
from redelivery.settings import Endpoint, TlsSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CERTIFICATES = Path(__file__).parent / "certificates"
AMQP, STOMP = b"AMQP\x00\x01\x00\x00", b"CONNECTED\nversion:1.2\n\n\0"


# Seconds. No wait here lasts so long, however slow the machine is: each side answers the other one, or closes.
LONG = 60.0


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait long for answers, and shortly for a greeting: a late one is recognised by the next probe."""
    monkeypatch.setattr(network, "PATIENCE", LONG)
    monkeypatch.setattr(network, "GREETING", 0.03)


@contextmanager
def serving(
    answer: Callable[[bytes], bytes], *, certificate: str | None = None, greeting: bytes = b""
) -> Iterator[int]:
    """Serve on a port: answer the first bytes, and close."""
    context = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATES / f"{certificate}.pem", CERTIFICATES / "server.key")
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                raw = server.accept()[0]
            except OSError:
                return
            with closing(raw):
                raw.settimeout(LONG)
                try:
                    peer = raw if context is None else context.wrap_socket(raw, server_side=True)
                    with closing(peer):
                        peer.sendall(greeting)
                        peer.sendall(answer(peer.recv(512)))
                except OSError:
                    continue

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield server.getsockname()[1]
    # Closing alone would not wake it.
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join(10)
    assert not thread.is_alive()


def at(port: int, scheme: str = "stomp") -> Endpoint:
    return Endpoint(scheme, "127.0.0.1", port)


def amqp(hello: bytes) -> bytes:
    return AMQP if hello.startswith(b"AMQP") else b""


def stomp(hello: bytes) -> bytes:
    return STOMP if hello.startswith(b"CONNECT") else b"ERROR\n\n\0"


@pytest.mark.parametrize(
    ("answer", "certificate", "greeting", "found"),
    [
        (amqp, None, b"", "amqp"),
        (amqp, "valid", b"", "amqps"),
        (lambda hello: stomp(hello) if hello.startswith(b"CONNECT") else b"", None, b"", "stomp"),
        (lambda hello: stomp(hello) if hello.startswith(b"CONNECT") else b"", "expired", b"", "stomp+ssl"),
        (lambda hello: b"\n\nERROR\n\n\0" if hello.startswith(b"CONN") else b"", None, b"", "stomp"),
        (lambda _: b"", None, b"\0\0\1*\1ActiveMQ", "openwire"),
        (lambda _: b"AMQP\0\0\t\1", None, b"", "amqp-0-9-1"),
        (lambda _: b"HTTP/1.1 400 Bad Request", None, b"", "http"),
        (lambda _: b"220 mail", "valid", b"", "tls"),
        (lambda _: b"220 mail", None, b"", ""),
    ],
)
def test_what_answers_is_recognised(
    answer: Callable[[bytes], bytes], certificate: str | None, greeting: bytes, found: str
) -> None:
    """Each protocol is recognised by its first bytes, with and without TLS, whatever the certificate."""
    with serving(answer, certificate=certificate, greeting=greeting) as port:
        assert network.answering(at(port)) == found


def test_nothing_answers_any_more() -> None:
    """An address that does not answer any more is not recognised."""
    with serving(amqp) as port:
        pass
    assert network.answering(at(port)) == ""
    with pytest.raises(ConnectionRefusedError):
        network.reach(at(port), LONG)


def test_probes_send_no_credentials() -> None:
    """Probes send no user name to an unknown peer."""
    heard: list[bytes] = []

    def hear(hello: bytes) -> bytes:
        heard.append(hello)
        return b""

    with serving(hear) as port:
        network.answering(at(port))
    assert {hello[:7] for hello in heard if hello and not hello.startswith(b"\x16")} == {
        b"AMQP\0\1\0",
        b"CONNECT",
    }
    assert not any(word in b"".join(heard) for word in (b"login", b"passcode"))


def test_an_address_and_what_is_behind_it() -> None:
    """The name is looked up, and a connection is made and closed."""
    with serving(amqp) as port:
        answer = network.reach(Endpoint("amqp", "localhost", port), LONG)
    assert answer.address in ("127.0.0.1", "::1")
    assert 0 <= answer.seconds < LONG
    assert network.addresses(at(1)) == ["127.0.0.1"]
    with pytest.raises(OSError, match=r"."):
        network.addresses(Endpoint("amqp", "nohost.invalid", 1))


@pytest.mark.parametrize(
    ("certificate", "trusted", "why"),
    [("valid", True, None), ("expired", True, "expired"), ("valid", False, "self-signed")],
)
def test_handshakes(certificate: str, trusted: bool, why: str | None) -> None:
    """The certificate is verified, and is read although it is refused."""
    pem = CERTIFICATES / f"{certificate}.pem"
    with serving(lambda _: b"", certificate=certificate) as port:
        shaken = network.handshake(
            at(port, "amqps"), TlsSettings(ca_file=str(pem) if trusted else None), LONG
        )
    assert shaken.der == ssl.PEM_cert_to_DER_cert(pem.read_text())
    if why is None:
        assert (shaken.version[:3], shaken.error) == ("TLS", None)
    else:
        assert isinstance(shaken.error, ssl.SSLCertVerificationError)
        assert why in shaken.error.verify_message.replace("self signed", "self-signed")


def test_a_handshake_with_what_has_no_tls() -> None:
    """A handshake with a peer without TLS fails, without a certificate."""
    with serving(lambda _: b"ERROR\n\n\0") as port:
        shaken = network.handshake(at(port, "stomp+ssl"), TlsSettings(), LONG)
    assert (shaken.der, shaken.error is None) == (b"", False)


def test_a_file_of_certificates_that_cannot_be_read() -> None:
    """A certificate file that cannot be read is named before anything is sent."""
    with (
        serving(amqp, certificate="valid") as port,
        pytest.raises(ConfigurationError, match="tlsCaFile=/nowhere"),
    ):
        network.handshake(at(port, "amqps"), TlsSettings(ca_file="/nowhere"), LONG)

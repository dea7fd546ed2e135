"""Network probes of one address: its name, TCP, TLS, and the protocol that answers. All of the I/O.

No probe logs in; each closes its connection at once. `network_findings` makes sentences of the results.
"""

from __future__ import annotations

import socket
import ssl
import time
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from redelivery.adapter_support.sockets import client_context
from redelivery.clock import capped
from redelivery.settings import TlsSettings

if TYPE_CHECKING:
    from redelivery.settings import Endpoint

__all__ = ["Answer", "Handshake", "addresses", "answering", "handshake", "reach"]

# Seconds that a probe waits for a peer's first bytes: a broker answers its own protocol in milliseconds.
PATIENCE = 2.0
# Seconds that a peer gets to speak first, as a broker's OpenWire port does.
GREETING = 0.3
AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
STOMP_CONNECT = b"CONNECT\naccept-version:1.1,1.2\nhost:/\n\n\0"
_OPENWIRE, _AMQP, _OLD_AMQP, _HTTP = b"ActiveMQ", b"AMQP", b"AMQP\x00\x00\x09", b"HTTP/"


@dataclass(frozen=True, slots=True)
class Answer:
    """Accepted TCP connection."""

    address: str
    """Network address, as `10.0.0.7`."""
    seconds: float


@dataclass(frozen=True, slots=True)
class Handshake:
    """Result of a TLS handshake. If it failed for the certificate, `der` is that certificate."""

    version: str = ""
    der: bytes = b""
    error: Exception | None = None


def addresses(endpoint: Endpoint) -> list[str]:
    """Return the addresses of a host's name, each once. Raises OSError, UnicodeError."""
    found = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(each[4][0]) for each in found))


def reach(endpoint: Endpoint, timeout: float) -> Answer:
    """Connect to the first address that answers, and close. Raises OSError."""
    began = time.monotonic()
    with closing(_connected(endpoint, timeout)) as raw:
        return Answer(str(raw.getpeername()[0]), time.monotonic() - began)


def _connected(endpoint: Endpoint, timeout: float) -> socket.socket:
    return socket.create_connection((endpoint.host, endpoint.port), capped(timeout))


def handshake(endpoint: Endpoint, tls: TlsSettings, timeout: float) -> Handshake:
    """Make a TLS connection as a consumer would, and close it.

    Raises:
        ConfigurationError: A file of certificates cannot be used.
        OSError: The address does not answer any more.
    """
    try:
        return _shaken(endpoint, tls, timeout)
    except ssl.SSLCertVerificationError as error:
        try:
            # Without verification, to read the certificate.
            seen = _shaken(endpoint, TlsSettings(verify=False), timeout).der
        except OSError:
            seen = b""
        return Handshake(der=seen, error=error)
    except (ssl.SSLError, ConnectionError, TimeoutError) as error:
        return Handshake(error=error)


def _shaken(endpoint: Endpoint, tls: TlsSettings, timeout: float) -> Handshake:
    context = client_context(tls)
    raw = _connected(endpoint, timeout)
    with closing(raw), closing(context.wrap_socket(raw, server_hostname=endpoint.host)) as wrapped:
        return Handshake(wrapped.version() or "TLS", wrapped.getpeercert(binary_form=True) or b"")


def answering(endpoint: Endpoint) -> str:
    """Return the protocol at an address: a scheme, `openwire`, `amqp-0-9-1`, `http`, `tls`; empty: not recognised."""
    try:
        with closing(_connected(endpoint, PATIENCE)) as raw:
            raw.settimeout(GREETING)
            if _OPENWIRE in _read(raw):
                return "openwire"
    except OSError:
        return ""
    for encrypted in (False, True):
        for hello, scheme in ((AMQP_HEADER, "amqp"), (STOMP_CONNECT, "stomp")):
            reply = _asked(endpoint, hello, encrypted=encrypted)
            if reply is None:
                # There is no TLS at that address.
                return ""
            if found := _recognised(reply, scheme, encrypted=encrypted):
                return found
    return "tls"


def _asked(endpoint: Endpoint, hello: bytes, *, encrypted: bool) -> bytes | None:
    """Return the first bytes that answer a greeting; None: there is no TLS."""
    try:
        raw = _connected(endpoint, PATIENCE)
        raw.settimeout(PATIENCE)
    except OSError:
        return None if encrypted else b""
    with closing(raw):
        if encrypted:
            try:
                raw = client_context(TlsSettings(verify=False)).wrap_socket(
                    raw, server_hostname=endpoint.host
                )
            except OSError:
                return None
        with closing(raw):
            try:
                raw.sendall(hello)
            except OSError:
                return b""
            return _read(raw)


def _read(raw: socket.socket) -> bytes:
    try:
        return raw.recv(512)
    except OSError:
        return b""


def _recognised(reply: bytes, scheme: str, *, encrypted: bool) -> str:
    """Return the protocol of these bytes, which answer a greeting in `scheme`; empty: not recognised."""
    if _OPENWIRE in reply:
        return "openwire"
    if reply.startswith(_OLD_AMQP):
        return "amqp-0-9-1"
    if reply.startswith(_HTTP):
        return "http"
    if scheme == "amqp" and reply.startswith(_AMQP):
        return "amqps" if encrypted else "amqp"
    # A heart-beat can come before it.
    if scheme == "stomp" and reply.lstrip(b"\r\n").startswith((b"CONNECTED", b"ERROR")):
        return "stomp+ssl" if encrypted else "stomp"
    return ""

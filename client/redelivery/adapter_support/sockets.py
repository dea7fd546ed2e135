"""Sockets to a broker, encrypted or not, for adapters.

A failure is one sentence that says why there is no connection.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from redelivery.clock import capped
from redelivery.errors import ConfigurationError, TransportError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redelivery.settings import Endpoint, TlsSettings

__all__ = ["ResponseTimeout", "client_context", "connected", "resolved"]


# ---- Sockets ---------------------------------------------------------------------------------------------

# Seconds. Not 0: that would make the socket non-blocking.
MOMENT = 0.001


def connected(endpoint: Endpoint, tls: TlsSettings, deadline: float) -> socket.socket:
    """Connect, and encrypt if the endpoint says so.

    The certificate is verified unless `tls` turns that off. Of the several addresses of a name, the first
    that answers is used. The system's look-up of a name has its own time-outs. It is not cut off at the
    deadline; the steps after it get less time.

    Args:
        endpoint: Address of the broker.
        tls: Certificates to use.
        deadline: Time of `time.monotonic` at which all steps must be done.

    Returns:
        The socket, with a time-out.

    Raises:
        TransportError: Nothing answers at the address in time, or the certificate is not trusted.
        ConfigurationError: A file of certificates cannot be used.
    """
    context = client_context(tls) if endpoint.tls else None
    try:
        raw = _reached(endpoint, deadline)
    except (OSError, UnicodeError) as error:  # not a host name
        raise TransportError(f"{endpoint}: cannot connect: {_reason(error)}") from error
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if context is None:
        return raw
    raw.settimeout(_left(deadline))
    try:
        return context.wrap_socket(raw, server_hostname=endpoint.host)
    except ssl.SSLCertVerificationError as error:
        raw.close()
        reason = error.verify_message or error.reason
        raise TransportError(f"{endpoint}: the broker's certificate is not trusted: {reason}") from error
    except OSError as error:
        raw.close()
        raise TransportError(f"{endpoint}: no TLS connection: {_reason(error)}") from error


def _left(deadline: float) -> float:
    return capped(max(MOMENT, deadline - time.monotonic()))


def _reached(endpoint: Endpoint, deadline: float) -> socket.socket:
    """Connect to the first address of the host that answers. All addresses share the time that is left."""
    found = socket.getaddrinfo(endpoint.ip or endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    failure = OSError("the name has no address")
    for tried, (family, kind, protocol, _, address) in enumerate(found):
        raw = socket.socket(family, kind, protocol)
        raw.settimeout(_left(deadline) / (len(found) - tried))
        try:
            raw.connect(address)
        except OSError as error:
            raw.close()
            failure = error
        else:
            return raw
    raise failure


def resolved(endpoint: Endpoint) -> Sequence[Endpoint]:
    """Return an endpoint for each address of a name that has several, in the order of the system's look-up.

    A name with one address, and one that is not found, is returned as it is.
    """
    if not endpoint.port:
        return (endpoint,)
    try:
        found = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return (endpoint,)
    addresses = list(dict.fromkeys(str(each[4][0]) for each in found))
    return [replace(endpoint, ip=address) for address in addresses] if len(addresses) > 1 else (endpoint,)


def client_context(tls: TlsSettings) -> ssl.SSLContext:
    """Return the TLS settings of a client.

    Raises:
        ConfigurationError: A file of certificates cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    option, name = "redelivery.tlsCaFile", tls.ca_file
    try:
        if tls.ca_file is not None:
            context.load_verify_locations(tls.ca_file)
        else:
            context.load_default_certs()
        option, name = "redelivery.tlsCertFile", tls.cert_file
        if tls.cert_file is not None:
            password = None if tls.key_password is None else tls.key_password.reveal()
            context.load_cert_chain(tls.cert_file, tls.key_file, password)
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"{option}={name}: cannot be used: {_reason(error)}", option=option
        ) from error
    return context


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).replace("_", " ").lower()
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


# ---- Response timeout ------------------------------------------------------------------------------------
# Limit on how long an adapter waits for an answer that other commands wait behind.

UNANSWERED = 60.0
"""Seconds. Starting a consumer waits for 30."""
SILENT = 15
"""Factor for a broker that answers nothing else either.

A RabbitMQ in a memory alarm reads nothing from a connection that publishes over STOMP, sends heart-beats all
the time, and answers after the alarm. A new connection would not be read either, and the commands of the old
one are carried out later: dead letters are written twice (measured).
"""


class ResponseTimeout:
    """Timer that calls `over`, on its own thread, when an answer is `limit` seconds late.

    If nothing else was answered (`heard`) in the later half of that time, it waits `silent` times as long. It
    uses real time, because it is about the network. The thread lives only while an answer is expected.
    """

    def __init__(self, over: Callable[[], None], limit: float = UNANSWERED, *, silent: int = 1) -> None:
        self._over = over
        self._limit = limit
        self._silent = silent
        # Time of the last answer to something else.
        self._heard = 0.0
        self._lock = threading.Lock()
        self._since: float | None = None
        self._timer: threading.Timer | None = None
        self._ended = False

    def asked(self) -> None:
        """Start waiting for an answer. An answer that was expected before has arrived."""
        with self._lock:
            if self._ended:
                # Called by a thread that has not noticed the end yet.
                return
            self._since = time.monotonic()
            if self._timer is None:
                self._start(self._limit)

    def heard(self) -> None:
        """Record that something else was answered."""
        self._heard = time.monotonic()

    def answered(self) -> None:
        """Stop waiting."""
        with self._lock:
            self._since = None
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def end(self) -> None:
        """Stop waiting for good: the connection is over, and no thread may outlive it."""
        with self._lock:
            self._ended = True
        self.answered()

    def _start(self, seconds: float) -> None:
        timer = threading.Timer(seconds, self._look)
        timer.name, timer.daemon = "redelivery-patience", True
        # It may raise. Then the next call of `asked` tries again.
        timer.start()
        self._timer = timer

    def _look(self) -> None:
        with self._lock:
            if threading.current_thread() is not self._timer:
                # It fired while it was being cancelled.
                return
            self._timer = None
            if self._since is None:
                return
            left = self._since + self._limit - time.monotonic()
            if left <= 0 and self._heard < self._since + self._limit / 2:
                # In steps of the limit: the broker may begin to answer other commands.
                left = min(self._limit, left + (self._silent - 1) * self._limit)
            if left > 0:
                self._start(left)
                return
            self._since = None
        self._over()

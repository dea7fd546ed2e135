"""Network probes of one address: its name, TCP, TLS, and the protocol that answers. All of the I/O.

No probe logs in; each closes its connection at once. `network_findings` makes sentences of the results.
"""

from __future__ import annotations

import socket
import ssl
import time
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from redelivery.adapter_support.sockets import client_context
from redelivery.brokers import untested
from redelivery.cli.checks.finding import fail, note, ok, warn
from redelivery.cli.exit_codes import MISCONFIGURED, REFUSED, UNREACHABLE
from redelivery.cli.formatting import duration
from redelivery.clock import capped
from redelivery.driver.port import is_loopback
from redelivery.errors import AdapterError
from redelivery.settings import TlsSettings
from redelivery.uri.schemes import SCHEMES

if TYPE_CHECKING:
    from redelivery.adapter import Agreed
    from redelivery.cli.checks.finding import Finding
    from redelivery.core.capabilities import Capabilities
    from redelivery.errors import RedeliveryError
    from redelivery.settings import Endpoint, Settings

__all__ = [
    "NAMES",
    "Answer",
    "Handshake",
    "addresses",
    "answering",
    "answers",
    "encrypted",
    "handshake",
    "instead",
    "logged_in",
    "no_answer",
    "no_name",
    "plain_password",
    "reach",
    "refused",
    "resolved",
    "validity",
]


# ---- Network ---------------------------------------------------------------------------------------------

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


# ---- Certificate -----------------------------------------------------------------------------------------
# Dates of a certificate, read out of its bytes: `ssl` decodes only one that it trusts.
#
# Only the path to the two dates is read (RFC 5280, 4.1). Bytes that are no certificate have no dates.

_SEQUENCE, _VERSION, _UTC_TIME, _TIME = 0x30, 0xA0, 0x17, 0x18


class Validity(NamedTuple):
    """Validity of a certificate, in UTC."""

    begins: datetime
    ends: datetime


def validity(der: bytes) -> Validity | None:
    """Return the validity of a certificate; None: the bytes are no certificate."""
    try:
        tag, certificate, _ = _value(der)
        _, signed, _ = _value(certificate)
        first, _, rest = _value(signed)
        # A version is optional; then serial number, algorithm and issuer.
        for _ in range(3 if first == _VERSION else 2):
            _, _, rest = _value(rest)
        dates, span, _ = _value(rest)
        if tag != _SEQUENCE or dates != _SEQUENCE:
            return None
        begin_tag, begins, rest = _value(span)
        end_tag, ends, _ = _value(rest)
        return Validity(_date(begin_tag, begins), _date(end_tag, ends))
    except (IndexError, ValueError):
        return None


def _value(data: bytes) -> tuple[int, bytes, bytes]:
    """Return the tag and the content of the first value, and the bytes behind it. Raises IndexError."""
    tag, size, at = data[0], data[1], 2
    if size & 0x80:
        count = size & 0x7F
        size, at = int.from_bytes(data[2 : 2 + count], "big"), 2 + count
    if at + size > len(data):
        raise IndexError("the value is cut off")
    return tag, data[at : at + size], data[at + size :]


def _date(tag: int, text: bytes) -> datetime:
    """Read a time of the two kinds that certificates have. Raises ValueError."""
    if tag not in (_UTC_TIME, _TIME):
        raise ValueError("no time")
    digits = text.decode("ascii")
    if tag == _UTC_TIME:
        # Two digits of the year: 1950 to 2049.
        digits = ("20" if digits[:2] < "50" else "19") + digits
    return datetime.strptime(digits, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


# ---- Network findings ------------------------------------------------------------------------------------
# Findings on the network's answers: a sentence each, and what to do. No I/O.

SOON = timedelta(days=14)
"""A certificate that ends sooner is a warning: renewing it takes an operator some days."""
_OTHERS = {
    "openwire": "OpenWire, the Java client's protocol",
    "amqp-0-9-1": "AMQP 0-9-1 and no AMQP 1.0; on RabbitMQ 3 enable the plugin rabbitmq_amqp1_0",
    "http": "HTTP: it may be the broker's web console",
    "tls": "TLS, and neither AMQP 1.0 nor STOMP",
}
# OpenSSL's `X509_V_ERR_…`: expired; signed by itself; its issuer is not known here; for another host or address.
_EXPIRED, _OWN, _NO_ISSUER, _OTHER_NAME = 10, (18, 19), (20, 21), (62, 64)


def resolved(endpoint: Endpoint, found: list[str]) -> Finding | None:
    """Return which addresses a host's name has; None: the URI has the address itself."""
    if found == [endpoint.host]:
        return None
    return ok("dns", f"{endpoint.host} is {', '.join(found)}")


def no_name(endpoint: Endpoint, error: Exception) -> Finding:
    """Return that a host's name has no address."""
    reason = getattr(error, "strerror", None) or str(error)
    return fail(
        "dns",
        f"{endpoint.host} has no address ({reason}): correct the host name, or look at the DNS of this machine",
        UNREACHABLE,
    )


def answers(endpoint: Endpoint, answer: Answer) -> Finding:
    """Return that the port accepts connections."""
    place = endpoint.host if answer.address == endpoint.host else f"{endpoint.host} ({answer.address})"
    return ok("tcp", f"{place}, port {endpoint.port}, answers in {duration(answer.seconds * 1000)}")


def no_answer(endpoint: Endpoint, error: OSError, timeout: float) -> Finding:
    """Return that the port refuses connections, or that the host does not answer."""
    place = f"{endpoint.host}, port {endpoint.port}"
    if isinstance(error, ConnectionRefusedError):
        usual = SCHEMES.get(endpoint.scheme, 0)
        other = f" ({endpoint.scheme} is usually on {usual})" if usual not in (0, endpoint.port) else ""
        text = (
            f"nothing listens on {place}: start the broker, correct the port{other}, or switch the protocol on in its "
            "configuration (newer ActiveMQ Classic listens for OpenWire only)"
        )
    elif isinstance(error, TimeoutError):
        text = (
            f"{place} does not answer within {timeout:g} s: the host is down, or a firewall drops what is sent to it; "
            "try from the broker's own network"
        )
    else:
        text = f"{place} cannot be reached ({error.strerror or error}): look at the route to that host"
    return fail("tcp", text, UNREACHABLE)


def encrypted(endpoint: Endpoint, tls: TlsSettings, shaken: Handshake, now: datetime) -> Finding:
    """Return whether a TLS connection succeeds, and how long its certificate is valid."""
    dates = validity(shaken.der)
    until = "" if dates is None else f" until {dates.ends:%Y-%m-%d}"
    if isinstance(shaken.error, ssl.SSLCertVerificationError):
        return fail("tls", _distrusted(endpoint, shaken.error, until), UNREACHABLE)
    if shaken.error is not None:
        reason = getattr(shaken.error, "reason", None) or str(shaken.error) or type(shaken.error).__name__
        why = reason.replace("_", " ").lower()
        return fail(
            "tls",
            f"{endpoint.host}, port {endpoint.port}, makes no TLS connection ({why}): give the port that the broker "
            f"has for {endpoint.scheme}",
            UNREACHABLE,
        )
    if dates is not None and dates.ends - now < SOON:
        days = (dates.ends - now).days
        when = (
            f"ends in {days} days, on {dates.ends:%Y-%m-%d}"
            if days >= 0
            else f"has ended on {dates.ends:%Y-%m-%d}"
        )
        return warn("tls", f"{shaken.version}; the certificate of {endpoint.host} {when}: have it renewed")
    if not tls.verify:
        return warn(
            "tls",
            f"{shaken.version}, but the certificate is not verified: a host in between can read the password; remove "
            "redelivery.tlsVerify=false",
        )
    return ok("tls", f"{shaken.version}; the certificate is trusted, for {endpoint.host}, and valid{until}")


def _distrusted(endpoint: Endpoint, error: ssl.SSLCertVerificationError, until: str) -> str:
    why = (error.verify_message or error.reason or "not trusted").rstrip(".")
    said = f"the certificate of {endpoint.host} is not trusted: {why}"
    if error.verify_code == _EXPIRED:
        return f"{said} (valid{until}): have the broker's certificate renewed"
    if error.verify_code in (*_OWN, *_NO_ISSUER):
        return f"{said}: give its authority as redelivery.tlsCaFile (a PEM file)"
    if error.verify_code in _OTHER_NAME:
        return f"{said}: give the host by a name that the certificate has, or add this one to it"
    return f"{said}: look at the broker's certificate and at the clock of this machine"


def instead(endpoint: Endpoint, answering: str, error: Exception) -> Finding:
    """Return why no log-in is possible at an address that answers. `answering`: the protocol there."""
    place = f"{endpoint.host}, port {endpoint.port}"
    if answering == endpoint.scheme:
        return fail("protocol", f"{error}: look at the broker's log", UNREACHABLE)
    if answering in SCHEMES:
        host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
        return fail(
            "protocol",
            f"{place} speaks {answering}, not {endpoint.scheme}: write {answering}://{host}:{endpoint.port}, or give "
            f"the port that the broker has for {endpoint.scheme}",
            UNREACHABLE,
        )
    if answering:
        return fail(
            "protocol",
            f"{place} speaks {_OTHERS[answering]}: give the port that the broker has for {endpoint.scheme}",
            UNREACHABLE,
        )
    return fail("protocol", f"{error}: give the port that the broker has for {endpoint.scheme}", UNREACHABLE)


def plain_password(endpoint: Endpoint, *, password: bool) -> Finding | None:
    """Return a warning if a password crosses a network unencrypted."""
    secure = {"stomp": "stomp+ssl", "amqp": "amqps"}.get(endpoint.scheme)
    if secure is None or not password or is_loopback(endpoint.host):
        return None
    return warn("password", f"it is sent to {endpoint.host} unencrypted: use {secure}://")


# ---- Log in ----------------------------------------------------------------------------------------------
# Findings on a log-in: broker, version, protocol, heart-beats; or the reason of its failure. No I/O.

# Measured with each broker: integration/test_frozen_client.py.
_IDLE = {
    "activemq": "transport.wireFormat.idleTimeout (ms) of its AMQP connector",
    "artemis": "amqpIdleTimeout (ms) of its AMQP acceptor",
    "qpid-broker-j": "qpid.port.heartbeatDelay (s) in the context of its port",
    "rabbitmq": "heartbeat (s) in its rabbitmq.conf",
}

NAMES = {
    "activemq": "ActiveMQ Classic",
    "artemis": "ActiveMQ Artemis",
    "qpid-broker-j": "Qpid Broker-J",
    "rabbitmq": "RabbitMQ",
}


def logged_in(settings: Settings, able: Capabilities, agreed: Agreed | None) -> list[Finding]:
    """Return that the log-in succeeded, with the broker's name and version."""
    user = "without a user name" if settings.user_name is None else "with the user name of the URI"
    protocol = "" if agreed is None else f"; {agreed.protocol}, {_beats(agreed)}"
    name = f"{NAMES.get(able.broker, able.broker)} {able.version}".rstrip()
    found = [ok("log-in", f"{user}; the broker is {name}{protocol}")]
    said = untested(able.broker, able.version)
    if said is not None:
        found.append(note("broker", f"{name} {said}"))
    if agreed is not None and agreed.protocol.startswith("AMQP"):
        found.append(_frozen(name, able.broker, agreed.sends))
    if able.not_delivered:
        lost = f"{name} does not deliver {able.not_delivered}, over this protocol"
        kept = "only its own dead-letter exchange keeps them (redelivery.deadLetter=ack)"
        found.append(note("copies", f"{lost}: handlers do not see them, and dead letters lack them; {kept}"))
    return found


def _frozen(name: str, broker: str, sends: float | None) -> Finding:
    """Return when a process that hangs as a whole loses its messages: over AMQP the broker alone decides."""
    until = (
        "its connection ends, for the broker asks for no heart-beats"
        if sends is None
        else f"the broker has missed some of its heart-beats, each {sends:g} s"
    )
    cure = (
        f"change {_IDLE[broker]}, not redelivery.heartbeat" if broker in _IDLE else "its own setting decides"
    )
    return note(
        "frozen process",
        f"over AMQP a process that freezes keeps its messages until {until}; on {name} {cure}",
    )


def _beats(agreed: Agreed) -> str:
    sends, expects = agreed.sends, agreed.expects
    if sends is None and expects is None:
        return "no heart-beats: a broken connection is seen late"
    if sends == expects:
        return f"heart-beats each {sends:g} s both ways"
    ours = "no heart-beats to the broker" if sends is None else f"heart-beats each {sends:g} s to the broker"
    return f"{ours}, {'none' if expects is None else f'each {expects:g} s'} from it"


def refused(settings: Settings, error: RedeliveryError) -> Finding:
    """Return why the broker refused the log-in, or why it cannot be used."""
    if not isinstance(error, AdapterError):
        return fail("broker", str(error), MISCONFIGURED)
    cure = (
        "add jms.userName=... and jms.password=... to the URI"
        if settings.user_name is None
        else "correct user name and password of the URI, or the rights of that user at the broker"
    )
    return fail("log-in", f"{error}: {cure}", REFUSED)

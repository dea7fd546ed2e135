"""Findings on the network's answers: a sentence each, and what to do. No I/O."""

from __future__ import annotations

import ssl
from datetime import timedelta
from typing import TYPE_CHECKING

from redelivery.cli.checks.certificate import validity
from redelivery.cli.checks.finding import fail, ok, warn
from redelivery.cli.exit_codes import UNREACHABLE
from redelivery.cli.formatting import duration
from redelivery.driver.port import is_loopback
from redelivery.uri.option_table import SCHEMES

if TYPE_CHECKING:
    from datetime import datetime

    from redelivery.cli.checks.finding import Finding
    from redelivery.cli.checks.network import Answer, Handshake
    from redelivery.settings import Endpoint, TlsSettings

__all__ = ["answers", "encrypted", "instead", "no_answer", "no_name", "plain_password", "resolved"]

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

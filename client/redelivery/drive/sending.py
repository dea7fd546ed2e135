"""A producer's message, checked before it is sent."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from redelivery.core.convert import refuse, seconds, whole
from redelivery.core.destination import Destination
from redelivery.core.outgoing import Outgoing
from redelivery.drive.arguments import known, single
from redelivery.errors import ConfigurationError, TransportError

if TYPE_CHECKING:
    from datetime import timedelta

    from redelivery.clock import Clock

__all__ = ["SendOptions", "outgoing", "time_limit", "unconfirmed", "unsent"]

SEND_TIMEOUT = 30.0  # seconds for the connection to stand and the broker to confirm a message


class SendOptions(TypedDict, total=False):
    """Keyword arguments of `send`."""

    headers: Mapping[str, Any] | None
    """Application properties."""
    content_type: str | None
    """MIME type."""
    correlation_id: str | None
    reply_to: str | None
    """Where an answer is expected; a queue by default."""
    priority: int | None
    """0 to 9; 4 by default (JMS)."""
    ttl: float | timedelta | None
    """Seconds until the message expires; never by default."""
    group: str | None
    """Message group (JMSXGroupID)."""
    delay: float | timedelta | None
    """Seconds that the broker holds the message back."""
    persistent: bool
    """Whether the broker keeps it over a restart; true by default."""
    timeout: float
    """Seconds for the connection to stand and the broker to confirm, together; 30 by default."""


def outgoing(destination: str, body: bytes | str, options: SendOptions, clock: Clock) -> tuple[str, Outgoing]:
    """Return a new id and the message that carries it."""
    known(options, SendOptions)
    if not isinstance(body, bytes | bytearray | memoryview | str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(f"body must be bytes or str, not {type(body).__name__}", option="body")
    priority = options.get("priority")
    if priority is not None:
        whole(priority, "priority", 0, 9)  # Artemis confirms a message with another priority, and drops it
    headers = options.get("headers") or {}
    if not isinstance(headers, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise refuse("headers", headers, "a mapping of names to values")
    for name in headers:
        if not isinstance(name, str) or not name or not name.isprintable() or ":" in name or "\\" in name:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(
                f"header name {name!r} has characters that no broker can carry", option="headers"
            )
    for name, value in headers.items():
        if not isinstance(value, str | int | float):
            raise ConfigurationError(
                f"header {name!r} must be text, a number or a boolean, not {type(value).__name__}",
                option="headers",
            )
        _writable(value, f"header {name!r}")
    for option in ("content_type", "correlation_id", "group"):
        _writable(options.get(option), option)
    identity = str(uuid.uuid4())
    ttl, delay, reply_to = options.get("ttl"), options.get("delay"), options.get("reply_to")
    return identity, Outgoing(
        destination=str(single(destination)),
        body=body.encode() if isinstance(body, str) else bytes(body),
        body_kind="text" if isinstance(body, str) else "bytes",
        headers={**headers, "redeliveryId": identity},
        content_type=options.get("content_type"),
        correlation_id=options.get("correlation_id"),
        reply_to=None if reply_to is None else str(Destination.parse(reply_to)),
        priority=4 if priority is None else priority,
        group=options.get("group"),
        expires_at=None if ttl is None else clock.time() + seconds(ttl, "ttl"),
        delay=None if delay is None else seconds(delay, "delay"),
        persistent=options.get("persistent", True),
    )


def time_limit(options: SendOptions) -> float:
    """Return the seconds that a send may take."""
    timeout = options.get("timeout", SEND_TIMEOUT)
    if timeout is None:  # pyright: ignore[reportUnnecessaryComparison]
        raise ConfigurationError(
            "timeout must be a number of seconds: a send never waits for ever", option="timeout"
        )
    return seconds(timeout, "timeout")


def _writable(value: object, what: str) -> None:
    """Refuse text that has no place in a header: a NUL, or half of a character."""
    if isinstance(value, str) and ("\0" in value or any("\ud800" <= c <= "\udfff" for c in value)):
        raise ConfigurationError(
            f"{what} has a NUL or a lone surrogate, which no broker can carry", option="headers"
        )


def unsent(destination: str, timeout: float) -> TransportError:
    """Return the error for a message that found no connection in time."""
    return TransportError(f"not connected after {timeout:g} s: nothing was sent to {destination}")


def unconfirmed(destination: str, timeout: float) -> TransportError:
    """Return the error for a message that the broker did not confirm in time."""
    return TransportError(
        f"the broker did not confirm a message to {destination} within {timeout:g} s; it may have been sent"
    )

"""A producer's message, checked before it is sent."""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypedDict, cast

from redelivery.core.dead_lettering.broker_marks import without_copy_id
from redelivery.core.destination import Destination
from redelivery.core.option_values import MAX_LONG, flag, refuse, seconds, shown, whole
from redelivery.core.outgoing import Outgoing
from redelivery.driver.arguments import known, single
from redelivery.errors import ConfigurationError, TransportError

if TYPE_CHECKING:
    from datetime import timedelta

    from redelivery.clock import Clock
    from redelivery.settings import Settings

__all__ = [
    "SendOptions",
    "checked_headers",
    "connection_limit",
    "outgoing",
    "send_limit",
    "time_limit",
    "unconfirmed",
    "unsent",
]

# Property by which a JMS producer names the message group.
GROUP = "JMSXGroupID"
# Seconds for the connection to be up and the broker to confirm a message.
SEND_TIMEOUT = 30.0


class SendOptions(TypedDict, total=False):
    """Keyword arguments of `send`."""

    headers: Mapping[str, Any] | None
    """Application properties."""
    content_type: str | None
    """MIME type."""
    correlation_id: str | None
    reply_to: str | None
    """Destination for an answer; a name without a scheme is a queue."""
    priority: int | None
    """0 to 9; None: 4, the default of JMS."""
    ttl: float | timedelta | None
    """Seconds until the message expires; None: never."""
    group: str | None
    """Message group (JMSXGroupID)."""
    delay: float | timedelta | None
    """Seconds that the broker holds the message back; None: it does not."""
    persistent: bool
    """True: the broker keeps the message over a restart. Default True."""
    timeout: float
    """Seconds to wait for the connection and the broker's confirmation. Default `redelivery.sendTimeout` (30)."""


def outgoing(destination: str, body: bytes | str, options: SendOptions, clock: Clock) -> tuple[str, Outgoing]:
    """Return a new id and the message that carries it."""
    known(options, SendOptions)
    if not isinstance(body, bytes | bytearray | memoryview | str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(f"body must be bytes or str, not {type(body).__name__}", option="body")
    text = {
        name: _text(options.get(name), name)
        for name in ("content_type", "correlation_id", "group", "reply_to")
    }
    content_type = text["content_type"]
    if content_type is not None and not (content_type.isascii() and content_type.isprintable()):
        raise refuse("content_type", content_type, "a MIME type, in ASCII")
    priority = options.get("priority")
    if priority is not None:
        # Artemis confirms a message with another priority, and drops it.
        whole(priority, "priority", 0, 9)
    persistent = flag(options.get("persistent", True), "persistent")
    headers = without_copy_id(checked_headers(options.get("headers")))
    group = _group(text["group"], headers)
    identity = str(uuid.uuid4())
    ttl, delay = options.get("ttl"), options.get("delay")
    return identity, Outgoing(
        destination=str(single(destination)),
        body=_encoded(body) if isinstance(body, str) else bytes(body),
        body_kind="text" if isinstance(body, str) else "bytes",
        headers={**headers, "redeliveryId": identity},
        content_type=content_type,
        correlation_id=text["correlation_id"],
        reply_to=None if text["reply_to"] is None else str(Destination.parse(text["reply_to"])),
        priority=4 if priority is None else priority,
        group=group,
        expires_at=None if ttl is None else clock.time() + seconds(ttl, "ttl"),
        delay=None if delay is None else seconds(delay, "delay"),
        persistent=persistent,
    )


def send_limit(settings: Settings) -> float:
    """Return the seconds that a send may take if the call has no `timeout`."""
    return SEND_TIMEOUT if settings.send_timeout is None else settings.send_timeout


def time_limit(options: SendOptions, settings: Settings) -> float:
    """Return the seconds that a send may take."""
    timeout = options.get("timeout", send_limit(settings))
    if timeout is None:  # pyright: ignore[reportUnnecessaryComparison]
        raise ConfigurationError(
            "timeout must be a number of seconds: a send never waits for ever", option="timeout"
        )
    return seconds(timeout, "timeout")


def checked_headers(headers: object) -> dict[str, str | int | float]:
    """Return application properties, plain. Raises ConfigurationError if a protocol cannot carry one."""
    if headers is None:
        return {}
    if not isinstance(headers, Mapping):
        raise refuse("headers", headers, "a mapping of names to values")
    found: dict[str, str | int | float] = {}
    for name, value in cast("Mapping[object, object]", headers).items():
        if not isinstance(name, str) or not name or not name.isprintable() or ":" in name or "\\" in name:
            raise ConfigurationError(
                f"header name {shown(name)} has characters that no broker can carry", option="headers"
            )
        found[_plain(name)] = _value(value, f"header {shown(name)}")
    return found


def _group(group: str | None, headers: dict[str, str | int | float]) -> str | None:
    """Return the message group; a JMS producer sets it as a property, which is taken out of `headers`."""
    # Over AMQP, Artemis and RabbitMQ do not look for it among the application properties.
    named = headers.pop(GROUP, None)
    if named is None:
        return group
    if not isinstance(named, str):
        raise ConfigurationError(
            f"header {GROUP!r} must be text, as it is the message group, not {type(named).__name__}",
            option="headers",
        )
    if group not in (None, named):
        raise ConfigurationError(
            f"group= and header {GROUP!r} name two groups; leave one out", option="group"
        )
    return named


def _value(value: object, what: str) -> str | int | float:
    """Return a header's value, plain: AMQP has no type for a subclass, nor for an integer of more than 64 bits."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _writable(value, what, "headers")
    if isinstance(value, int) and -MAX_LONG - 1 <= value <= MAX_LONG:
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    kind = shown(value) if isinstance(value, int | float) else type(value).__name__
    raise ConfigurationError(
        f"{what} must be text, a boolean, a whole number of 64 bits or a finite float, not {kind}",
        option="headers",
    )


def _text(value: object, option: str) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise refuse(option, value, "text, or None")
    return _writable(value, option, option)


def _writable(value: str, what: str, option: str) -> str:
    """Return text, plain. Raises ConfigurationError if it has a NUL or a lone surrogate."""
    if "\0" in value or any("\ud800" <= c <= "\udfff" for c in value):
        raise ConfigurationError(
            f"{what} has a NUL or a lone surrogate, which no broker can carry", option=option
        )
    return _plain(value)


def _plain(text: str) -> str:
    """Return the `str` of a text of a subclass, for example of an enumeration."""
    return str.__str__(text)


def _encoded(body: str) -> bytes:
    try:
        return body.encode()
    except UnicodeEncodeError:
        raise ConfigurationError(
            "body has a lone surrogate, which is no text; send bytes", option="body"
        ) from None


def connection_limit(settings: Settings, timeout: float) -> float:
    """Return the seconds that a send may wait for a reconnect: `failover`'s own `timeout` may be shorter."""
    limit = settings.failover.timeout
    return timeout if limit is None else min(timeout, limit)


def unsent(destination: str, timeout: float) -> TransportError:
    """Return the error for a message that was not sent: there was no connection in time."""
    return TransportError(f"not connected after {timeout:g} s: nothing was sent to {destination}")


def unconfirmed(destination: str, timeout: float) -> TransportError:
    """Return the error for a message that the broker did not confirm in time."""
    return TransportError(
        f"the broker did not confirm a message to {destination} within {timeout:g} s; it may have been sent"
    )

"""Sends of a connection: checked, shown to observers, and pending until the broker has answered."""

from __future__ import annotations

import itertools
import math
import threading
import uuid
from collections.abc import Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, cast

from redelivery.core.dead_lettering.dead_letter_headers import without_copy_id
from redelivery.core.destination import Destination
from redelivery.core.option_values import MAX_LONG, flag, refuse, seconds, shown, whole
from redelivery.core.outgoing import Outgoing
from redelivery.driver.arguments import known, single
from redelivery.errors import (
    AdapterError,
    BrokerUnavailable,
    ConfigurationError,
    RedeliveryError,
    TransportError,
    another,
)
from redelivery.events import Sent
from redelivery.log import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from datetime import timedelta

    from redelivery.clock import Clock
    from redelivery.core.commands import AdapterCommand
    from redelivery.driver.observers import Observers
    from redelivery.settings import Settings

__all__ = [
    "PendingSends",
    "SendOptions",
    "checked_headers",
    "closed",
    "connection_limit",
    "end",
    "observed_send",
    "outgoing",
    "send_limit",
    "time_limit",
    "unconfirmed",
    "unsent",
]


# ---- Pending sends ---------------------------------------------------------------------------------------
# Sends that the broker has not answered yet.

MOST_ABANDONED = 16 * 1024 * 1024
"""Bytes of bodies of abandoned sends, in memory for a broker that does not read. At the limit nothing more is sent."""


class SendingDriver(Protocol):
    """Interface of the driver that writes a message; `ConnectionDriver` implements it."""

    def not_connected(self) -> RedeliveryError | None:
        """Return why nothing can be written now; None: the connection is up."""

    def write(self, commands: Sequence[AdapterCommand]) -> None:
        """Write commands on this thread."""


class PendingSends:
    """Pending sends of the current connection: maps a token to the future that ends with the broker's answer.

    A send whose time is up stays with the adapter until the broker reads it, or until the connection is lost. A program
    that sends again and again would fill the memory. Therefore nothing more is sent past `MOST_ABANDONED`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tokens = itertools.count(1)
        # With the bytes of its bodies, and the destination of a message that is sent alone.
        self._waiting: dict[int, tuple[Future[None], int, str | None]] = {}
        self._abandoned: dict[int, int] = {}  # bytes

    def __len__(self) -> int:
        """Return the number of sends without an answer."""
        return len(self._waiting)

    def ask(
        self,
        messages: Sequence[Outgoing],
        command: Callable[[int], AdapterCommand],
        unsent: type[RedeliveryError] | None,
        driver: SendingDriver,
    ) -> Future[None]:
        """Write messages; return the future that ends with the answer.

        Args:
            messages: The messages that the command sends; their bodies are counted until the answer.
            command: Makes the command with a token.
            unsent: Type of the error if nothing was written; None: the error as it is.
            driver: Driver of the connection.
        """
        try:
            token, future = self.begin(messages, alone=unsent is None)
        except RedeliveryError as error:
            refusal: Future[None] = Future()
            end(refusal, error if unsent is None else unsent(str(error)))
            return refusal
        # After `begin`: a connection loss in between ends this send, too.
        lost = driver.not_connected()
        if lost is not None:
            self.answered(token, lost if unsent is None else unsent(str(lost)))
            return future
        try:
            driver.write((command(token),))
        except Exception as error:  # noqa: BLE001 - a value that the protocol cannot carry, or a fault
            what = AdapterError(f"the message cannot be written: {type(error).__name__}: {error}")
            self.answered(token, what)
        return future

    def begin(self, messages: Sequence[Outgoing], *, alone: bool) -> tuple[int, Future[None]]:
        """Return a token for the command, and the future that ends with its answer. Raises TransportError.

        `alone`: the message is sent by itself, and not in a transaction.
        """
        future: Future[None] = Future()
        token, size = next(self._tokens), sum(len(message.body) for message in messages)
        with self._lock:
            given_up = sum(self._abandoned.values())
            if given_up >= MOST_ABANDONED:
                raise TransportError(
                    f"the broker has not confirmed {len(self._abandoned)} messages ({given_up} bytes) in time: "
                    f"nothing was sent to {', '.join(message.destination for message in messages) or 'it'}"
                )
            self._waiting[token] = future, size, messages[0].destination if alone else None
        future.add_done_callback(lambda _: self._ended(token, size))
        return token, future

    def answered(self, token: int, error: RedeliveryError | None) -> None:
        """End the future of a send with the broker's answer."""
        with self._lock:
            future, _, destination = self._waiting.pop(token, (None, 0, None))
            self._abandoned.pop(token, None)
        if destination is not None and isinstance(error, AdapterError) and error.passes:
            # A node that restarts: a caller who takes a refusal as permanent would drop the message.
            error = BrokerUnavailable(f"{error}; the broker refuses it for now: try again")
        end(future, error)

    def give_up(self, future: Future[None]) -> None:
        """Count a send as abandoned: the application no longer waits, but the answer is still used."""
        with self._lock:
            for token, (waiting, size, _) in self._waiting.items():
                if waiting is future:
                    self._abandoned[token] = size

    def lost(self, error: RedeliveryError) -> None:
        """End all sends with the error of the lost connection; messages that were not yet written are lost with it."""
        with self._lock:
            waiting, self._waiting = list(self._waiting.values()), {}
            self._abandoned.clear()
        for future, _, destination in waiting:
            told = f"{error}; the message to {destination} may have been sent"
            end(future, error if destination is None else TransportError(told))

    def _ended(self, token: int, size: int) -> None:
        with self._lock:
            # Still pending: the caller has ended the future, not an answer.
            if self._waiting.pop(token, None) is not None:
                self._abandoned[token] = size


def end(future: Future[None] | None, error: RedeliveryError | None) -> None:
    """End a future, unless its waiting caller has cancelled it, even at this moment."""
    if future is None:
        return
    with suppress(InvalidStateError):
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(another(error))


def closed() -> TransportError:
    """Return the error for calls that the application's own `close` has ended."""
    return TransportError("the connection was closed")


# ---- Send request ----------------------------------------------------------------------------------------
# A producer's message, checked before it is sent.

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


# ---- Observed send ---------------------------------------------------------------------------------------
# Sends with observers: they may add headers before a send, and get its end as an event.


def _added(headers: Mapping[str, Any], message: Outgoing) -> dict[str, str | int | float]:
    """Return the headers that observers have added, without those that no broker can carry; these are logged."""
    found: dict[str, str | int | float] = {}
    for name, value in headers.items():
        if name in message.headers:
            continue
        try:
            found |= checked_headers({name: value})
        except ConfigurationError as error:
            logger.warning("%s: an observer's header is left out: %s", message.destination, error)
    return found


def observed_send(
    observers: Observers, message: Outgoing, identity: str, clock: Clock
) -> AbstractContextManager[Outgoing]:
    """Context manager: gives the message with the observers' headers; its end is the end of the send for them."""
    return _observed(observers, message, identity, clock) if observers.watches_sends else nullcontext(message)


@contextmanager
def _observed(observers: Observers, message: Outgoing, identity: str, clock: Clock) -> Generator[Outgoing]:
    began, headers = clock.monotonic(), dict(message.headers)
    tokens, error = observers.sending(message.destination, headers), None
    try:
        yield replace(message, headers={**_added(headers, message), **message.headers})
    except BaseException as raised:
        error = raised
        raise
    finally:
        seconds = clock.monotonic() - began
        observers.sent(tokens, Sent(clock.time(), message.destination, identity, seconds, error))

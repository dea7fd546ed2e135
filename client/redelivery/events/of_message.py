"""Events of a message without a result of its handler: it is parked, dead-lettered, dropped, set aside, or overdue."""

from __future__ import annotations

from dataclasses import dataclass

from redelivery.events.event import MessageEvent

__all__ = [
    "DeadLetterFailed",
    "DeadLettered",
    "DeadLettering",
    "Deduplicated",
    "Dropped",
    "HandlerOverdue",
    "Parked",
    "SetAside",
    "Unanswered",
]


@dataclass(slots=True, repr=False, eq=False)
class Parked(MessageEvent):
    """A message that had failed, or was deferred, was redelivered early; it is parked for the rest of its delay."""

    name = "parked"

    cause: str
    """Type and text of its last failure."""
    delay: float
    """Seconds until its due time."""
    deferred: bool
    """True if it was deferred; that used up no redelivery."""
    copied: bool
    """True if the broker holds a delayed copy meanwhile."""
    native: bool = False
    """True if the broker holds the message itself meanwhile. If `copied` is False, too, this client parks it."""


@dataclass(slots=True, repr=False, eq=False)
class DeadLettering(MessageEvent):
    """A message is dead-lettered without being handled: it has expired, or was poison before a reconnect."""

    name = "dead-lettering"

    cause: str
    to: str | None
    """Destination of the copy that this client sends; None: the broker dead-letters the message."""
    again: bool = False
    """True if it was tried before, and refused or not confirmed."""
    own_place: str = ""
    """Where the broker puts the message, in words, if it dead-letters it and that is known; else empty."""


@dataclass(slots=True, repr=False, eq=False)
class DeadLettered(MessageEvent):
    """The broker has confirmed a dead letter. Emitted on the thread that reads from the broker: be quick."""

    name = "dead-lettered"

    cause: str
    cause_type: str | None
    """Name of the exception's type; None: the cause is a reason in words, or the failure was before a reconnect."""
    delivery_count: int
    """Number of deliveries of the message."""
    copied: bool
    """True if this client has sent a copy; False: the broker has dead-lettered the message itself."""


@dataclass(slots=True, repr=False, eq=False)
class DeadLetterFailed(MessageEvent):
    """A dead letter, or a delayed copy, was refused, or its confirmation was lost with several connections in a row.

    Another try follows. The message stays on the broker.
    """

    name = "dead letter failed"

    error: BaseException
    tries: int
    """Number of tries so far."""
    delay: float
    """Seconds until the next try."""
    delayed: bool
    """True for a delayed copy."""
    again: bool
    """True if another one of this consumer failed in the last minute: the log then has no line for this one."""


@dataclass(slots=True, repr=False, eq=False)
class Dropped(MessageEvent):
    """A message is accepted without being handled and without a dead letter, as configured."""

    name = "dropped"

    cause: str


@dataclass(slots=True, repr=False, eq=False)
class Deduplicated(MessageEvent):
    """A duplicate was accepted without being handled: its message was settled before."""

    name = "deduplicated"

    reason: str


@dataclass(slots=True, repr=False, eq=False)
class SetAside(MessageEvent):
    """A message can neither be dead-lettered nor settled: it stays here, unacknowledged, and is not dispatched."""

    name = "set aside"

    error: BaseException
    still: bool
    """True if it was set aside before: the event repeats each hour."""


@dataclass(slots=True, repr=False, eq=False)
class Unanswered(MessageEvent):
    """The broker has not confirmed a poison acknowledgement, or a delayed copy; the library waits on."""

    name = "unanswered"

    seconds: float
    """Seconds since it was sent."""
    delayed: bool
    """True for a delayed copy."""


@dataclass(slots=True, repr=False, eq=False)
class HandlerOverdue(MessageEvent):
    """A handler runs for longer than its `timeout`; once for each run, and once more when it is given up."""

    name = "handler overdue"

    seconds: float
    """Seconds for which it has run; 300 or a little more if its listener has no `timeout`."""
    timeout: float | None
    """Timeout of its listener in seconds, or None."""
    given_up: bool
    """True if it has run for twice its timeout: `connection.error` is set."""
    cancelled: bool
    """True if it is cancelled now; False: it runs on a thread, and nothing can stop it."""
    stack: str
    """Stack of the handler, innermost frame last."""

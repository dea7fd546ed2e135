"""Events of a message that no handler is at work on: it waits, is dead-lettered, dropped or set aside."""

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
    """A message that had failed, or was deferred, has arrived again, and waits for the rest of its delay."""

    name = "parked"

    cause: str
    """Type and text of its last failure."""
    delay: float
    """Seconds until it is redelivered."""
    deferred: bool
    """It was deferred, uncharged."""
    copied: bool
    """The broker holds a delayed copy meanwhile."""
    native: bool = False
    """The broker holds the message itself meanwhile. If it holds neither, this client holds the message."""


@dataclass(slots=True, repr=False, eq=False)
class DeadLettering(MessageEvent):
    """A message is dead-lettered without being handled: it has expired, or was poison before a reconnect."""

    name = "dead-lettering"

    cause: str
    to: str | None
    """Where this client sends its copy; None: the broker dead-letters it."""


@dataclass(slots=True, repr=False, eq=False)
class DeadLettered(MessageEvent):
    """The broker has confirmed a dead letter. On the thread that reads from the broker: be quick."""

    name = "dead-lettered"

    cause: str
    cause_type: str | None
    """Name of the type of exception; None: it is a reason in words, or the failure was before a reconnect."""
    delivery_count: int
    """Deliveries that the message had."""
    copied: bool
    """This client has sent a copy; else the broker has dead-lettered the message itself."""


@dataclass(slots=True, repr=False, eq=False)
class DeadLetterFailed(MessageEvent):
    """The broker has refused a dead letter, or a delayed copy; it is tried again. The message stays on the broker."""

    name = "dead letter failed"

    error: BaseException
    tries: int
    """How often it was tried."""


@dataclass(slots=True, repr=False, eq=False)
class Dropped(MessageEvent):
    """A message is accepted without being handled and without a dead letter, as configured."""

    name = "dropped"

    cause: str


@dataclass(slots=True, repr=False, eq=False)
class Deduplicated(MessageEvent):
    """A delivery was accepted without being handled, because its message was done with before."""

    name = "deduplicated"

    reason: str


@dataclass(slots=True, repr=False, eq=False)
class SetAside(MessageEvent):
    """A message can neither be dead-lettered nor settled: it stays here, unacknowledged, and is not dispatched."""

    name = "set aside"

    error: BaseException
    still: bool
    """It has been for another hour."""


@dataclass(slots=True, repr=False, eq=False)
class Unanswered(MessageEvent):
    """The broker has not answered a poison acknowledgement, or a delayed copy; it is waited for."""

    name = "unanswered"

    seconds: float
    delayed: bool
    """It is a delayed copy."""


@dataclass(slots=True, repr=False, eq=False)
class HandlerOverdue(MessageEvent):
    """A handler runs for longer than its `timeout`; once for each run, and once more when it is given up."""

    name = "handler overdue"

    seconds: float
    """Seconds for which it runs; 300 where its listener has no `timeout`."""
    timeout: float | None
    """Seconds; None: its listener has none."""
    given_up: bool
    """It has run for twice its timeout: `connection.error` is set."""
    cancelled: bool
    """It is cancelled now; else nothing can stop it, because it is a thread."""
    stack: str
    """Where it is, innermost last."""

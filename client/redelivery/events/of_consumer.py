"""Events of a consumer: its beginning and end, its breaker, its limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from redelivery.events.event import ConsumerEvent

if TYPE_CHECKING:
    from redelivery.core.breaker import BreakerState

__all__ = [
    "BreakerChanged",
    "ConsumerStarted",
    "ConsumerStopped",
    "CreditSpent",
    "ParkingFull",
    "Paused",
    "PolicyFault",
    "QueueAdvice",
    "QueueCaution",
    "Received",
    "ResultStale",
    "Resumed",
    "TakenBack",
    "WorkerEnded",
]


@dataclass(slots=True, repr=False, eq=False)
class ConsumerStarted(ConsumerEvent):
    """The broker has confirmed a consumer, for the first time or after a reconnect."""

    name = "consumer started"


@dataclass(slots=True, repr=False, eq=False)
class QueueAdvice(ConsumerEvent):
    """The broker could do something for this consumer's queue that it has not been asked for."""

    name = "queue advice"

    text: str
    """What, and the option that asks for it."""


@dataclass(slots=True, repr=False, eq=False)
class QueueCaution(ConsumerEvent):
    """The broker may lose a message of this consumer's queue, as it is declared."""

    name = "queue caution"

    text: str
    """How, and the cure."""


@dataclass(slots=True, repr=False, eq=False)
class ConsumerStopped(ConsumerEvent):
    """A consumer has stopped by itself, with an error. Its messages stay on the broker."""

    name = "consumer stopped"

    error: BaseException


@dataclass(slots=True, repr=False, eq=False)
class Paused(ConsumerEvent):
    """`pause` was called."""

    name = "paused"


@dataclass(slots=True, repr=False, eq=False)
class Resumed(ConsumerEvent):
    """`resume` was called."""

    name = "resumed"


@dataclass(slots=True, repr=False, eq=False)
class Received(ConsumerEvent):
    """Messages have arrived from the broker. Some of them may be copies of what was accepted before."""

    name = "received"

    count: int


@dataclass(slots=True, repr=False, eq=False)
class BreakerChanged(ConsumerEvent):
    """The circuit breaker has changed its state, or another probe has failed while it is open."""

    name = "breaker changed"
    logger = "redelivery.breaker"

    old: BreakerState
    new: BreakerState
    cause: str | None
    """Type and text of the last failure."""
    failures: int
    """Failures in a row that have opened it."""
    messages: int
    """Different messages among them."""
    delay: float
    """Seconds until the next probe."""
    spared: int
    """Failures that were not charged since it was closed."""
    seconds: float
    """Seconds since it was closed."""
    charging: bool
    """It has closed because nothing succeeded for `breakerMaximumOpen`; failures are charged again."""
    told: bool
    """`Classifier.trip` names the exception as an outage."""
    reminds: bool
    """It has been open for long, and the log repeats that."""


@dataclass(slots=True, repr=False, eq=False)
class ParkingFull(ConsumerEvent):
    """As many messages as `redelivery.maxParked` allows are parked; no fresh one is dispatched. Once a consumer."""

    name = "parking full"

    parked: int


@dataclass(slots=True, repr=False, eq=False)
class CreditSpent(ConsumerEvent):
    """The application holds the whole credit unsettled; the broker sends nothing more. Once a consumer."""

    name = "credit spent"

    running: int


@dataclass(slots=True, repr=False, eq=False)
class ResultStale(ConsumerEvent):
    """A result came after the connection was lost; the broker redelivers the message. Once a consumer."""

    name = "result stale"


@dataclass(slots=True, repr=False, eq=False)
class TakenBack(ConsumerEvent):
    """The broker has taken messages back that were not settled within its consumer timeout; it redelivers them."""

    name = "taken back"

    messages: int
    running: int
    """Handlers still run for so many of them. Their results will be stale."""
    limit: float | None
    """Seconds of the timeout, or None where it is not known."""


@dataclass(slots=True, repr=False, eq=False)
class PolicyFault(ConsumerEvent):
    """A policy raised, or returned nonsense. Once a consumer and policy."""

    name = "policy fault"

    policy: str
    """Name of its class."""
    text: str
    """What is wrong, and what was done instead."""
    error: BaseException | None
    """What it raised."""


@dataclass(slots=True, repr=False, eq=False)
class WorkerEnded(ConsumerEvent):
    """A worker has ended by an exception that no policy takes; its consumer stops."""

    name = "worker ended"

    error: BaseException

"""Events of a consumer: its start and end, its circuit breaker, its limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from redelivery.events.event import ConsumerEvent

if TYPE_CHECKING:
    from redelivery.core.breaker import BreakerState

__all__ = [
    "BreakerChanged",
    "ConsumerRefused",
    "ConsumerStarted",
    "ConsumerStopped",
    "CreditSpent",
    "ManyLosses",
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

    refusals: int = 0
    """Number of refusals in a row before it."""


@dataclass(slots=True, repr=False, eq=False)
class ConsumerRefused(ConsumerEvent):
    """The broker refuses a consumer for now, after it had confirmed it: a node starts or stops. It is tried again."""

    name = "consumer refused"

    error: BaseException
    times: int
    """Number of refusals in a row."""


@dataclass(slots=True, repr=False, eq=False)
class QueueAdvice(ConsumerEvent):
    """The broker has a feature for this consumer's queue that is not used."""

    name = "queue advice"

    text: str
    """The feature, and the option that switches it on."""


@dataclass(slots=True, repr=False, eq=False)
class QueueCaution(ConsumerEvent):
    """The broker may lose a message of this consumer's queue: by the way it is declared, or by an option of the URI."""

    name = "queue caution"

    text: str
    """How a message may be lost, and what to do."""


@dataclass(slots=True, repr=False, eq=False)
class ConsumerStopped(ConsumerEvent):
    """A consumer has stopped with an error. Its messages stay on the broker."""

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
    """Messages have arrived from the broker. Some may be duplicates of messages that were accepted before."""

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
    """Failures that were not charged since it was last closed."""
    seconds: float
    """Seconds since it was last closed."""
    charging: bool
    """True if it has closed because its longest time has passed since the first opening: failures are charged again."""
    named: bool
    """True if `Classifier.trip` names the exception as an outage."""
    reminds: bool
    """True if it has been open for long: the log repeats that."""


@dataclass(slots=True, repr=False, eq=False)
class ParkingFull(ConsumerEvent):
    """`redelivery.maxParked` messages are parked; no new message is dispatched. Once for each consumer."""

    name = "parking full"

    parked: int


@dataclass(slots=True, repr=False, eq=False)
class CreditSpent(ConsumerEvent):
    """The application has the whole credit unsettled; the broker sends nothing more. Once for each consumer."""

    name = "credit spent"

    running: int


@dataclass(slots=True, repr=False, eq=False)
class ResultStale(ConsumerEvent):
    """A handler ended after its connection was lost; the broker redelivers the message. Once for each consumer."""

    name = "result stale"


@dataclass(slots=True, repr=False, eq=False)
class TakenBack(ConsumerEvent):
    """The broker has taken back messages that were not settled within its consumer timeout; it redelivers them."""

    name = "taken back"

    messages: int
    running: int
    """Number of these messages whose handlers still run. Their results will be stale."""
    limit: float | None
    """Seconds of the timeout, or None if unknown."""


@dataclass(slots=True, repr=False, eq=False)
class ManyLosses(ConsumerEvent):
    """Messages were held at half of the lost connections after which the broker drops them, or dead-letters them."""

    name = "many losses"

    messages: int
    losses: int
    """Connections that were lost while each of them was held."""
    limit: int
    """`x-delivery-limit` of the queue."""


@dataclass(slots=True, repr=False, eq=False)
class PolicyFault(ConsumerEvent):
    """A policy raised, or returned a value that cannot be used. Once for each consumer and policy class."""

    name = "policy fault"

    policy: str
    """Name of its class."""
    text: str
    """The fault, and what was done instead."""
    error: BaseException | None
    """Exception of the policy; None: it raised none."""


@dataclass(slots=True, repr=False, eq=False)
class WorkerEnded(ConsumerEvent):
    """A worker has ended with an error that no policy handles, as a `KeyboardInterrupt`; its consumer stops."""

    name = "worker ended"

    error: BaseException

"""All events: of a connection, of a consumer, of the handling of a message; and the arguments of hooks."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

if TYPE_CHECKING:
    from redelivery.core.breaker import BreakerState
    from redelivery.core.commands import Subscribe
    from redelivery.core.delivery import Delivery, Outcome
    from redelivery.core.report import Report
    from redelivery.message import Message

__all__ = [
    "COUNTED_STATES",
    "BreakerChanged",
    "Connected",
    "ConnectionLost",
    "ConsumerEvent",
    "ConsumerRefused",
    "ConsumerStarted",
    "ConsumerStopped",
    "CreditSpent",
    "DeadLetterFailed",
    "DeadLettered",
    "DeadLettering",
    "Death",
    "Deduplicated",
    "DrainBegun",
    "Drained",
    "Dropped",
    "Event",
    "Finished",
    "GivenUp",
    "HandlerOverdue",
    "ManyDropped",
    "ManyLosses",
    "MessageEvent",
    "NextStep",
    "Parked",
    "ParkingFull",
    "Paused",
    "PolicyFault",
    "QueueAdvice",
    "QueueCaution",
    "Received",
    "ResultDetails",
    "ResultStale",
    "Resumed",
    "Retry",
    "Sent",
    "SetAside",
    "Started",
    "TakenBack",
    "Unaccounted",
    "Unanswered",
    "Verdict",
    "WorkerEnded",
    "counted_state",
]


# ---- Event -----------------------------------------------------------------------------------------------
# Base classes of all events: of a connection, of a consumer and of a message.


@dataclass(slots=True, repr=False, eq=False)
class Event:
    """Base of all events."""

    name: ClassVar[str] = "event"
    """Name of this kind of event, in logs and labels."""
    computed: ClassVar[tuple[str, ...]] = ()
    """Properties that `fields` returns in addition to the dataclass' own fields."""

    logger: ClassVar[str] = "redelivery.connection"
    """Name of the logger of its log line, if it has one."""

    at: float
    """Time of the event: Unix time in seconds."""

    def fields(self) -> dict[str, Any]:
        """Return the event as plain values for a log: text, numbers, booleans, None."""
        own = [each.name for each in dataclasses.fields(self) if not each.name.startswith("_")]
        return {"event": self.name} | {name: _plain(getattr(self, name)) for name in (*self.computed, *own)}

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={value!r}" for name, value in self.fields().items() if name != "event")
        return f"{type(self).__name__}({inside})"


def _plain(value: object) -> object:
    """Return a value that JSON can carry."""
    if isinstance(value, BaseException):
        return type(value).__name__
    if value is None or isinstance(value, str | int | float):
        return value
    return str(value)


@dataclass(slots=True, repr=False, eq=False)
class ConsumerEvent(Event):
    """Interface of the events of one consumer."""

    computed: ClassVar[tuple[str, ...]] = ("destination", "consumer")
    logger = "redelivery.consumers"

    _subscribe: Subscribe

    @property
    def destination(self) -> str:
        """Destination that the consumer consumes from, with its wildcards: `queue://orders`."""
        return self._subscribe.destination

    @property
    def consumer(self) -> int:
        """Number of the consumer on its connection, from 1."""
        return self._subscribe.consumer

    @property
    def subscription(self) -> str | None:
        """Name of the consumer's durable subscription, or None."""
        return self._subscribe.subscription


@dataclass(slots=True, repr=False, eq=False)
class MessageEvent(ConsumerEvent):
    """Interface of the events of one delivery of a message."""

    computed: ClassVar[tuple[str, ...]] = ("destination", "consumer", "message_destination", "message_id")
    logger = "redelivery.messages"

    _delivery: Delivery

    @property
    def delivery(self) -> Delivery:
        """The delivery; for the library's own use."""
        return self._delivery

    @property
    def message_destination(self) -> str:
        """Destination to which the message was sent; differs from `destination` if the consumer has wildcards."""
        return self._delivery.destination

    @property
    def message_id(self) -> str | None:
        """Id of the message, as `Message.message_id`, or None."""
        return self._delivery.message_id

    @property
    def sent_as(self) -> str | None:
        """Id that `send` of this library returned, if the broker has given the message another id; else None."""
        sent = self._delivery.headers.get("redeliveryId")
        own = self._delivery.message_id
        return str(sent) if sent is not None and sent != own else None


# ---- Of connection ---------------------------------------------------------------------------------------
# Events of the connection itself, and of messages that are sent.


@dataclass(slots=True, repr=False, eq=False)
class Connected(Event):
    """The connection is up."""

    name = "connected"

    address: str
    """Address without user and password."""
    broker: str
    version: str
    """Empty if the broker does not send its version."""
    again: bool
    """True after a reconnect."""
    late: bool = False
    """True if once before it no address has answered."""
    unserved: bool = False
    """True if the connection before it served none of its consumers: the broker refuses them for now."""


@dataclass(slots=True, repr=False, eq=False)
class ConnectionLost(Event):
    """The connection was lost; the library reconnects."""

    name = "connection lost"

    error: BaseException
    unserved: bool = False
    """True if it served none of its consumers, and was given up for the next address."""


@dataclass(slots=True, repr=False, eq=False)
class GivenUp(Event):
    """The connection was given up; there is no further reconnect."""

    name = "given up"

    error: BaseException


@dataclass(slots=True, repr=False, eq=False)
class Unaccounted(Event):
    """Messages that were held when a connection was lost have not come back for a minute.

    The minute begins when their consumer is served again. Another consumer has them, or the broker has dropped them.
    """

    name = "unaccounted"

    messages: int


@dataclass(slots=True, repr=False, eq=False)
class Sent(Event):
    """A `send` has ended: the broker has confirmed the message, or `error` was raised."""

    name = "sent"

    destination: str
    message_id: str | None
    """Id that `send` returns."""
    seconds: float
    error: BaseException | None


@dataclass(slots=True, repr=False, eq=False)
class DrainBegun(Event):
    """A drain begins: nothing more is dispatched."""

    name = "drain begun"

    running: int
    """Handlers that run."""
    timeout: float
    """Seconds that the drain waits for them at most."""


@dataclass(slots=True, repr=False, eq=False)
class Drained(Event):
    """A drain has ended."""

    name = "drained"

    report: Report
    seconds: float
    """Seconds that it took."""

    def counts(self) -> dict[str, int]:
        """Return the counters of the report that are not 0, by name."""
        return {name: count for name, count in dataclasses.asdict(self.report).items() if count}

    def fields(self) -> dict[str, Any]:
        """Return the event as plain values, with the counters of the report that are not 0."""
        return {"event": self.name, "at": self.at, "seconds": self.seconds, **self.counts()}


@dataclass(slots=True, repr=False, eq=False)
class ManyDropped(Event):
    """Messages were dropped instead of dead-lettered. Emitted once for each `redelivery.reportInterval` of them."""

    name = "many dropped"

    dropped: int
    """Number of dropped messages so far."""


# ---- Of consumer -----------------------------------------------------------------------------------------
# Events of a consumer: its start and end, its circuit breaker, its limits.


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


# ---- Of handling -----------------------------------------------------------------------------------------
# Events of the handling of a message: a handler begins, and the delivery has its result.

Verdict = Literal["succeeded", "failed", "poison", "discard", "defer", "release"]
"""Verdict of the handler, or of the application, on a delivery."""

NextStep = Literal[
    "none",
    "redelivery",
    "delayed copy",
    "delayed by the broker",
    "dead-letter copy",
    "poison acknowledgement",
    "drop",
    "stop",
    "set aside",
]
"""Next step after a result.

- `redelivery`: this client parks the message. `delayed copy`, `delayed by the broker`: the broker holds a copy, or the
  message itself.
- `poison acknowledgement`: the broker dead-letters the message. `dead-letter copy`: this client sends a copy.
- `drop`: the message is accepted without a dead letter. `stop`: the consumer stops. `set aside`: the message stays
  here, unacknowledged, and is not dispatched.
"""


@dataclass(slots=True, repr=False, eq=False)
class Started(MessageEvent):
    """A handler begins with a delivery. Emitted on its thread or task."""

    name = "started"
    computed: ClassVar[tuple[str, ...]] = (*MessageEvent.computed, "delivery_count")

    message: Message

    @property
    def delivery_count(self) -> int:
        """Delivery count of this delivery, from 1."""
        return self.message.delivery_count

    def fields(self) -> dict[str, Any]:
        """Return the event as plain values, without the message itself."""
        found = MessageEvent.fields(self)
        del found["message"]
        return found


class ResultDetails(NamedTuple):
    """Details of a result that is no plain success."""

    outcome: Outcome | None
    verdict: Verdict
    error: BaseException | None = None
    cause: str | None = None
    cause_type: str | None = None
    delivery_count: int | None = None
    maximum: int | None = None
    deferrals: int = 0
    next_step: NextStep = "none"
    delay: float | None = None
    to: str | None = None
    # Of a poison acknowledgement: where the broker then puts the message, in words.
    own_place: str = ""


# Shared by all plain successes, which most results are.
_ACCEPTED = ResultDetails("accepted", "succeeded")


@dataclass(slots=True, repr=False, eq=False)
class Finished(MessageEvent):
    """A delivery has its result. Emitted on the thread or task of its handler, before the next message there.

    For a message that the application has received itself, emitted when the application settles it.
    """

    name = "finished"
    computed: ClassVar[tuple[str, ...]] = (
        *MessageEvent.computed, "verdict", "outcome", "delivery_count", "maximum", "cause_type", "cause", "next_step",
        "delay", "to",
    )  # fmt: skip

    message: Message | None
    """The message, if a handler had it; else None."""
    seconds: float | None
    """Seconds that the handler took; None: the application has received the message itself."""
    details: ResultDetails = _ACCEPTED
    """For the library's own use; read the properties instead."""

    @property
    def outcome(self) -> Outcome | None:
        """Outcome of the delivery; None: its session has not committed, or acknowledged, it yet."""
        return self.details.outcome

    @property
    def verdict(self) -> Verdict:
        """Verdict of the handler, or of the application."""
        return self.details.verdict

    @property
    def error(self) -> BaseException | None:
        """Exception of the handler, or None."""
        return self.details.error

    @property
    def delivery_count(self) -> int:
        """Delivery count of this delivery, from 1: deliveries that were charged before, and this one."""
        found = self.details.delivery_count
        if found is not None:
            return found
        record = self.delivery.record
        return 1 if record is None else record.count + 1

    @property
    def maximum(self) -> int | None:
        """Number of deliveries that the policy allows; None: no limit, or nothing has failed."""
        return self.details.maximum

    @property
    def cause(self) -> str | None:
        """Type and text of the failure, or the reason that the handler gave; None: nothing failed."""
        return self.details.cause

    @property
    def cause_type(self) -> str | None:
        """Name of the exception's type, if the cause is an exception; else None."""
        return self.details.cause_type

    @property
    def deferrals(self) -> int:
        """Number of deferrals of the message."""
        return self.details.deferrals

    @property
    def next_step(self) -> NextStep:
        """Next step after this result."""
        return self.details.next_step

    @property
    def delay(self) -> float | None:
        """Seconds until the redelivery by the policy; None: there is none. An open circuit breaker makes it later."""
        return self.details.delay

    @property
    def to(self) -> str | None:
        """Destination of the dead letter, if this client sends it; else None."""
        return self.details.to

    def fields(self) -> dict[str, Any]:
        """Return the event as plain values, without the message itself."""
        found = MessageEvent.fields(self)
        for own in ("message", "details"):
            del found[own]
        return found


# ---- Of message ------------------------------------------------------------------------------------------
# Events of a message without a result of its handler: it is parked, dead-lettered, dropped, set aside, or overdue.


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


# ---- Retry and death -------------------------------------------------------------------------------------
# Second arguments of a listener's hooks `on_retry` and `on_dead_letter`.


@dataclass(frozen=True, slots=True)
class Retry:
    """Failed delivery whose message is redelivered."""

    delay: float
    """Seconds until the redelivery by the policy; an open circuit breaker makes it later."""
    delivery_count: int
    """Delivery count of the failed delivery, from 1."""
    maximum: int | None
    """Deliveries that the policy allows; None: no limit."""
    cause: str
    """Type and text of the failure, or the reason that was given."""
    error: BaseException | None
    """Exception of the handler; None: the handler called `fail`."""


@dataclass(frozen=True, slots=True)
class Death:
    """Dead letter that the broker has confirmed."""

    cause: str
    """Type and text of the last failure, or the reason that was given."""
    delivery_count: int
    """Number of deliveries of the message; 0: it expired before the first one."""
    error: BaseException | None
    """Last exception of a handler in this process; None: there was none, or it was before a reconnect."""


# ---- Breaker states --------------------------------------------------------------------------------------
# States of a circuit breaker for metrics: `probing` counts as `open`.

CountedState = Literal["closed", "open", "ramp"]
COUNTED_STATES: tuple[CountedState, ...] = ("closed", "open", "ramp")


def counted_state(state: BreakerState) -> CountedState:
    """Return the state for metrics: `open` instead of `probing`."""
    return "open" if state == "probing" else state

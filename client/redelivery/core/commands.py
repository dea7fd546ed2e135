"""Commands: the closed union of values that `Engine.feed` returns.

Their receivers: the driver carries out `Dispatch` and `Stop`. Its ledger, if it has one, carries out `LookUp`, `Mark`,
`Clear` and `Bury`. Its log reports `Hold`, `AcceptUnseen`, `Dropped`, `SetAside`, `StillAside`, `Unanswered`,
`Refused`, `Postponed`, `PolicyFault` and `BreakerChanged`. The adapter carries out the others.
The driver itself makes `Send`, `Commit`, `Subscribe` and `Unsubscribe`: no engine decides them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redelivery.core.breaker import BreakerState
    from redelivery.core.capabilities import Capabilities
    from redelivery.core.delivery import Cause, Delivery
    from redelivery.core.dispatch_order import Ordering
    from redelivery.core.ledger_entry import Buried, Entry
    from redelivery.core.outgoing import Outgoing
    from redelivery.core.policy.redelivery_policy import Policy
    from redelivery.errors import RedeliveryError

__all__ = [
    "Accept",
    "AcceptUnseen",
    "AdapterCommand",
    "BreakerChanged",
    "Bury",
    "Clear",
    "Command",
    "Commit",
    "Credit",
    "Dispatch",
    "Dropped",
    "Forward",
    "Hold",
    "LedgerCommand",
    "LookUp",
    "LossesCounted",
    "Mark",
    "PoisonAck",
    "PolicyFault",
    "Postponed",
    "Refused",
    "Release",
    "Reschedule",
    "Send",
    "SetAside",
    "StillAside",
    "Stop",
    "Subscribe",
    "TookBack",
    "Unanswered",
    "Unsubscribe",
    "outdated",
]


class Dispatch:
    """Give the delivery to a handler."""

    __slots__ = ("delivery",)

    def __init__(self, delivery: Delivery) -> None:
        self.delivery = delivery


class LookUp:
    """Read the ledger entry of the message, and feed `Known`; until then the delivery counts as running."""

    __slots__ = ("delivery",)

    def __init__(self, delivery: Delivery) -> None:
        self.delivery = delivery


class Mark:
    """Note durably that an attempt begins, after `count` charged failures. A `Dispatch` follows."""

    __slots__ = ("count", "delivery")

    def __init__(self, delivery: Delivery, count: int) -> None:
        self.delivery = delivery
        self.count = count


class Clear:
    """End of an attempt: write `entry` for the message; None: remove its entry.

    `failed`: the failure is charged; the mark stays until the entry is written. `keep`: leave the present entry.
    `late`: the message may have been redelivered since; a present entry that is newer stays.
    """

    __slots__ = ("delivery", "entry", "failed", "keep", "late")

    def __init__(
        self,
        delivery: Delivery,
        entry: Entry | None,
        *,
        failed: bool = False,
        keep: bool = False,
        late: bool = False,
    ) -> None:
        self.delivery = delivery
        self.entry = entry
        self.failed = failed
        self.keep = keep
        self.late = late

    def keeps(self, known: Entry | None) -> bool:
        """Return True if the present entry of the message stays unchanged."""
        if self.keep or not self.late or known is None or self.entry is None:
            return self.keep
        return known.poisoned or known.count > self.entry.count


class Bury:
    """The dead letter is confirmed: remove the entry of its key. `buried`: the cause, where no copy carries it.

    `early`: the original is acknowledged only now. If that is lost, the broker redelivers it: remove the entry later.
    """

    __slots__ = ("buried", "delivery", "early", "key")

    def __init__(self, delivery: Delivery, key: bytes, buried: Buried | None, *, early: bool = False) -> None:
        self.delivery = delivery
        self.key = key
        self.buried = buried
        self.early = early


class Accept:
    """Accept deliveries. Not confirmed: if an acknowledgement is lost, the message is redelivered with the flag."""

    __slots__ = ("deliveries",)

    def __init__(self, deliveries: Sequence[Delivery]) -> None:
        self.deliveries = deliveries


@dataclass(frozen=True, slots=True)
class AcceptUnseen:
    """The delivery is accepted without being handled, for the reason `why`. An `Accept` accompanies it. For the log."""

    delivery: Delivery
    why: str


@dataclass(frozen=True, slots=True)
class Hold:
    """The delivery is parked until `due`. `deferred`: not after a failure, or after one that is not charged.

    For the log and the observer; and for an adapter whose window is in bytes, because parked messages fill it.
    """

    delivery: Delivery
    due: float
    delay: float
    count: int
    cause: Cause | None
    deferred: bool = False


@dataclass(frozen=True, slots=True)
class PoisonAck:
    """Send the broker's own poison acknowledgement for the delivery, and report `Confirmed`.

    Args:
        delivery: Delivery of the poison message.
        cause: Cause of its last failure.
        count: Number of its charged failures.
        own_place: Where the broker then puts it, in words; empty: not known.
    """

    delivery: Delivery
    cause: Cause
    count: int
    own_place: str = ""


@dataclass(frozen=True, slots=True)
class Forward:
    """Send the copy, and report `Confirmed` when the broker has confirmed it.

    Where forwarding is atomic by the capabilities, the original is accepted in the same transaction. Elsewhere the
    adapter does not settle the original: the engine accepts it once the copy is confirmed.

    Args:
        delivery: Delivery of the original.
        copy: Message to send. One with a `delay` goes back to the queue it came from, and the broker delays it;
            another capability (`reschedule`) says if that is atomic.
        cause: Cause of the last failure.
        count: Number of charged failures.
        redrive: True if the delivery is a dead letter, and the copy goes back to its original destination.
        marks: Properties of the broker's own without which its destination drops the copy. They are not in `copy`,
            whose names a producer can have chosen.
    """

    delivery: Delivery
    copy: Outgoing
    cause: Cause
    count: int
    redrive: bool = False
    marks: tuple[tuple[str, str], ...] = ()

    @property
    def delayed(self) -> bool:
        """True if the broker is to delay the copy."""
        return self.copy.delay is not None

    @property
    def back(self) -> bool:
        """True if the copy is to be handled again: it gets none of the headers that mark a dead letter."""
        return self.redrive or self.copy.delay is not None

    def atomic(self, capabilities: Capabilities) -> bool:
        """Return True if the original is accepted in the transaction that sends the copy."""
        return (capabilities.reschedule if self.delayed else capabilities.forward) == "atomic"


@dataclass(frozen=True, slots=True)
class Reschedule:
    """Release the delivery uncounted; the broker redelivers it at `due`, in seconds since the Unix epoch.

    The broker sends no answer: the message is its own at once.

    Args:
        delivery: Delivery to release.
        due: Due time in seconds since the Unix epoch.
        notes: Facts that the broker keeps with the message for its next consumer (`Delivery.noted`).
        delay: Seconds from now to `due`.
        cause: Cause of the last failure.
        count: Number of charged failures.
        deferred: True if the application asked for it, and nothing is charged.
    """

    delivery: Delivery
    due: float
    notes: Mapping[str, str | int]
    delay: float
    cause: Cause
    count: int
    deferred: bool = False


@dataclass(frozen=True, slots=True)
class ForwardAll:
    """Carry out all forwards in one transaction, all or nothing; report `Confirmed` for each, with the same answer.

    Only where forwarding is atomic by the capabilities. A delivery of an older epoch is left out.
    """

    forwards: Sequence[Forward]


@dataclass(frozen=True, slots=True)
class Dropped:
    """A poison or expired delivery is accepted without a dead letter, as configured. For the log."""

    delivery: Delivery
    cause: Cause


@dataclass(frozen=True, slots=True)
class SetAside:
    """The delivery can neither be dead-lettered nor settled: it stays here unacknowledged, and is not dispatched.

    For the log. `error`: why, and the cure. `again`: it was set aside before, and has been redelivered.
    """

    delivery: Delivery
    error: RedeliveryError
    again: bool = False


@dataclass(frozen=True, slots=True)
class StillAside:
    """The delivery has been set aside for another hour. For the log. `error`: why, and the cure."""

    delivery: Delivery
    error: RedeliveryError


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A poison acknowledgement has had no answer for `seconds`; it stays pending. For the log."""

    delivery: Delivery
    seconds: float


@dataclass(frozen=True, slots=True)
class Refused:
    """The broker has refused a dead letter or a delayed copy; it is sent again after `delay` seconds. For the log.

    `error`: why. `again`: the log has reported a refusal a short time before.
    """

    delivery: Delivery
    error: RedeliveryError
    delay: float
    again: bool


@dataclass(frozen=True, slots=True)
class Postponed:
    """A dead letter or a delayed copy waits for `delay` seconds, because others ended connections. For the log.

    `command`: the one that follows then.
    """

    command: PoisonAck | Forward
    delay: float


@dataclass(frozen=True, slots=True)
class LossesCounted:
    """So many `messages` were held at half of the lost connections after which the broker drops them. For the log."""

    messages: int
    losses: int
    limit: int


@dataclass(frozen=True, slots=True)
class TookBack:
    """The broker has taken back `messages` after its time limit; handlers run for `running` of them.

    For the log. `seconds`: the limit, or None if it is not known.
    """

    messages: int
    running: int
    seconds: float | None


@dataclass(frozen=True, slots=True)
class PolicyFault:
    """A policy raised, or returned no usable value, when `member` was read. `text`: what was done instead.

    For the log. `error`: the exception that it raised.
    """

    policy: Policy
    member: str
    text: str
    error: BaseException | None


@dataclass(frozen=True, slots=True)
class BreakerChanged:
    """The breaker has changed its state; or another probe has failed, and it stays open. For the log.

    `cause`: of the last failure. `failures`: the failures in a row, of `messages` different messages, that opened it.
    `delay`: seconds until the next probe. `spared`: failures not charged in the `seconds` since it was closed.
    `charging`: it has closed because nothing succeeded for too long, and every failure is charged. `named`: the
    exception was registered as an outage. `reminds`: the log is to report an open breaker again.
    """

    old: BreakerState
    new: BreakerState
    cause: Cause | None
    failures: int
    messages: int
    delay: float
    spared: int
    seconds: float
    charging: bool = False
    named: bool = False
    reminds: bool = False


@dataclass(frozen=True, slots=True)
class Release:
    """Release deliveries: give them back to the broker, uncounted."""

    deliveries: Sequence[Delivery]


@dataclass(frozen=True, slots=True)
class Credit:
    """Allow the broker to send more messages to the consumer, or fewer.

    Args:
        consumer: Number of the consumer.
        messages: How many more; negative: how many fewer. Where the window only grows (`Capabilities.grows`), they
            are a part of the subscription's `room`: messages are parked, and must not stop the others. A negative
            number gives room back, which may be done later.
        widens: True for a consumer with `Subscribe.most` whose handlers are fast, or whose messages are parked. This
            credit is never given back.
    """

    consumer: int
    messages: int
    widens: bool = False


@dataclass(frozen=True, slots=True)
class Stop:
    """The consumer must stop; the application gets `error`."""

    error: RedeliveryError


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Start a consumer.

    Args:
        consumer: Number of the consumer.
        destination: Queue or topic, qualified.
        window: Messages that the broker may leave unsettled here; parked ones are not included.
        selector: Filter for the broker; None: all messages.
        subscription: Name of the durable subscription; None: not durable.
        dead_letters: Destinations that copies may be sent to. `Subscribed` reports an error if the adapter can find out
            that this is impossible for one of them.
        own_place: Ask first where the broker's own settings put the dead letters of this destination, and check that
            place, too: the capabilities of `Subscribed` have it. Only with the capability `tells_dead_letters`.
        epoch: Connection that the command is made for (0: any). On another one it is dropped, with the commands after
            it in the same call: that connection gets a `Subscribe` of its own.
        browse: Show the messages of the queue without taking them: the deliveries are never settled. Where there is
            flow, `Credit` asks for more; `Browsed` reports the end. Refused without the capability `browse`.
        existing: Do not create the queue, where the protocol can say so: a missing queue is refused.
        in_step: Send a copy only after the broker has carried out the earlier acceptances. A kill then leaves no more
            duplicates than copies were on their way. Nothing to do for a broker that processes all in order.
        private: No other consumer uses the queue. If it would stay for ever, the broker is asked to delete it when
            idle.
        room: Number of messages that may be parked on top of `window`. Where there is flow, and where the window
            grows, `Credit` asks for the room when messages are parked. Elsewhere the consumer has it from the start.
        ordering: Order that the consumer promises. Messages that arrive over several paths may be redelivered in
            another order, and a message group may be bound to one of them.
        most: Number of messages up to which `Credit` may widen the window, without `room`; 0: the window is fixed.
        hold: Seconds that its policies may keep a message parked; None: no limit.
        rescheduled: The broker delays messages until their redelivery. Refused if it cannot do so in this queue.
        spared: Refused, before a message is taken, if the broker drops a message of this queue after a number of
            releases, or does not report whether it does (`Capabilities.release_limit`).
        caution: What its options may lose of this destination, said when it has started; nothing for an adapter to do.
    """

    consumer: int
    destination: str
    window: int
    selector: str | None = None
    subscription: str | None = None
    dead_letters: tuple[str, ...] = ()
    own_place: bool = False
    epoch: int = 0
    browse: bool = False
    existing: bool = False
    in_step: bool = False
    private: bool = False
    room: int = 0
    ordering: Ordering = "non_blocking"
    most: int = 0
    hold: float | None = None
    rescheduled: bool = False
    spared: bool = False
    caution: str = ""


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """End a consumer: the broker takes its unsettled messages back."""

    consumer: int


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message, and report `Sent` with the same token when the broker has confirmed it."""

    token: int
    message: Outgoing


@dataclass(frozen=True, slots=True)
class Commit:
    """Accept deliveries and send messages in one transaction, all or nothing; `Sent` with the same token answers it.

    Only with the capability `transactions`. If one delivery is of an older epoch, nothing is done.
    """

    token: int
    deliveries: Sequence[Delivery]
    messages: Sequence[Outgoing]


def outdated(commands: Sequence[AdapterCommand], epoch: int) -> bool:
    """Return True if the commands begin a consumer on another connection than the one of this epoch."""
    first = commands[0] if commands else None
    return isinstance(first, Subscribe) and first.epoch not in (0, epoch)


AdapterCommand = (
    Accept
    | Hold
    | PoisonAck
    | Forward
    | ForwardAll
    | Reschedule
    | Release
    | Credit
    | Subscribe
    | Unsubscribe
    | Send
    | Commit
)
LedgerCommand = LookUp | Mark | Clear | Bury
Command = (
    Dispatch
    | LedgerCommand
    | Accept
    | AcceptUnseen
    | Hold
    | PoisonAck
    | Forward
    | Reschedule
    | Dropped
    | SetAside
    | StillAside
    | Unanswered
    | Refused
    | Postponed
    | TookBack
    | LossesCounted
    | PolicyFault
    | BreakerChanged
    | Release
    | Credit
    | Stop
)

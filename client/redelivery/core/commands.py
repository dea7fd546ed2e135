"""What to do about it: the closed union of commands that `Engine.feed` returns.

`Dispatch` and `Stop` are for the driver, `LookUp`, `Mark`, `Clear` and `Bury` for its ledger if it has one, `Hold`,
`AcceptUnseen`, `Dropped`, `SetAside`, `StillAside`, `Unanswered`, `PolicyFault` and `BreakerChanged` for its log; the
others are for the adapter.
`Send`, `Commit`, `Subscribe` and `Unsubscribe` are made by the driver itself, because no engine decides them.
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
    "Mark",
    "PoisonAck",
    "PolicyFault",
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
    """Ask the ledger what is known of the message, and feed `Known`; until then it counts as running."""

    __slots__ = ("delivery",)

    def __init__(self, delivery: Delivery) -> None:
        self.delivery = delivery


class Mark:
    """Note durably that an attempt begins: `count` failures have been charged before. A `Dispatch` follows."""

    __slots__ = ("count", "delivery")

    def __init__(self, delivery: Delivery, count: int) -> None:
        self.delivery = delivery
        self.count = count


class Clear:
    """The attempt has ended: `entry` is what to write down of the message, None: forget it.

    `failed`: it has been charged for, so the mark stays until the entry is written. `keep`: leave what is written.
    `late`: the message may have been redelivered, and more be known of it by now: leave that.
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
        """Whether what is written of the message stays as it is."""
        if self.keep or not self.late or known is None or self.entry is None:
            return self.keep
        return known.poisoned or known.count > self.entry.count


class Bury:
    """The dead letter is safe: forget the message of that key. `buried`: the cause, where no copy carries it.

    `early`: its original is acknowledged only now. If that is lost, the message is sent again: forget it after a while.
    """

    __slots__ = ("buried", "delivery", "early", "key")

    def __init__(self, delivery: Delivery, key: bytes, buried: Buried | None, *, early: bool = False) -> None:
        self.delivery = delivery
        self.key = key
        self.buried = buried
        self.early = early


class Accept:
    """Tell the broker that these are done with. Not confirmed: a lost one comes back marked as redelivered."""

    __slots__ = ("deliveries",)

    def __init__(self, deliveries: Sequence[Delivery]) -> None:
        self.deliveries = deliveries


@dataclass(frozen=True, slots=True)
class AcceptUnseen:
    """The delivery is accepted without being handled, and `why`: an `Accept` is beside it. For the log."""

    delivery: Delivery
    why: str


@dataclass(frozen=True, slots=True)
class Hold:
    """The delivery waits until `due`: the engine holds it. `deferred`: not for a failure, or for one not charged.

    For the log and the observer; and for an adapter whose window is in bytes, because what is held fills the window.
    """

    delivery: Delivery
    due: float
    delay: float
    count: int
    cause: Cause | None
    deferred: bool = False


@dataclass(frozen=True, slots=True)
class PoisonAck:
    """Give the delivery the broker's own poison acknowledgement, and report `Confirmed`."""

    delivery: Delivery
    cause: Cause
    count: int


@dataclass(frozen=True, slots=True)
class Forward:
    """Send the copy, and report `Confirmed` when the broker has it.

    Where the capabilities say that forwarding is atomic, the original is accepted in the same transaction. Elsewhere
    the adapter leaves it alone: the engine accepts it once the copy is confirmed.

    `redrive`: the delivery is a dead letter that goes back. A copy with a `delay` goes back too, and the broker holds
    it until then; whether that is atomic is another capability.
    """

    delivery: Delivery
    copy: Outgoing
    cause: Cause
    count: int
    redrive: bool = False

    @property
    def delayed(self) -> bool:
        """Whether the broker is to hold the copy back."""
        return self.copy.delay is not None

    @property
    def back(self) -> bool:
        """Whether the copy is to be handled again: it gets none of what marks a dead letter."""
        return self.redrive or self.copy.delay is not None

    def atomic(self, capabilities: Capabilities) -> bool:
        """Whether the original is accepted in the transaction that sends the copy."""
        return (capabilities.reschedule if self.delayed else capabilities.forward) == "atomic"


@dataclass(frozen=True, slots=True)
class Reschedule:
    """Give the delivery back uncounted, and have the broker deliver it again at `due`, in seconds since the Unix epoch.

    Nothing is answered: the message is the broker's at once. `notes`: what it keeps with the message, for whoever gets
    it next (`Delivery.noted`). `delay`: seconds from now. `deferred`: the application asked for it, nothing is charged.
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
    """Carry these out in one transaction, all or nothing; report `Confirmed` for each, all with the one answer.

    Only where the capabilities say that forwarding is atomic. A delivery of an older epoch is left out.
    """

    forwards: Sequence[Forward]


@dataclass(frozen=True, slots=True)
class Dropped:
    """The delivery was poison, or had expired, and is accepted without a dead letter, as configured. For the log."""

    delivery: Delivery
    cause: Cause


@dataclass(frozen=True, slots=True)
class SetAside:
    """The delivery can neither be dead-lettered nor settled: it stays here unacknowledged, and is not dispatched.

    For the log. `error`: why, and the cure. `again`: it was set aside before, and has come again.
    """

    delivery: Delivery
    error: RedeliveryError
    again: bool = False


@dataclass(frozen=True, slots=True)
class StillAside:
    """The delivery has been set aside for another hour. For the log; `error`: why, and the cure."""

    delivery: Delivery
    error: RedeliveryError


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A poison acknowledgement has had no answer for so many seconds; it is waited for. For the log."""

    delivery: Delivery
    seconds: float


@dataclass(frozen=True, slots=True)
class TookBack:
    """The broker has taken so many messages back after its limit of time; `running`: handlers have so many of them.

    For the log. `seconds`: the limit, or None where it is not known.
    """

    messages: int
    running: int
    seconds: float | None


@dataclass(frozen=True, slots=True)
class PolicyFault:
    """A policy raised, or gave no sensible answer, when it was asked for `member`; `text`: and what was done instead.

    For the log. `error`: what it raised.
    """

    policy: Policy
    member: str
    text: str
    error: BaseException | None


@dataclass(frozen=True, slots=True)
class BreakerChanged:
    """The breaker has changed its state; or another probe has failed, and it stays open. For the log.

    `cause`: of the last failure. `failures` in a row, of so many `messages`: what has opened it. `delay`: seconds until
    the next probe. `spared` failures were not charged in the `seconds` since it was closed. `charging`: it has closed
    because nothing succeeded for too long, and all is charged. `told`: the exception was named as an outage.
    `reminds`: the log is to name it again.
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
    told: bool = False
    reminds: bool = False


@dataclass(frozen=True, slots=True)
class Release:
    """Give deliveries back to the broker, uncounted."""

    deliveries: Sequence[Delivery]


@dataclass(frozen=True, slots=True)
class Credit:
    """Allow the broker to send this many messages more to the consumer; fewer, if it is negative.

    Where the window only grows (`Capabilities.grows`), they are a part of the subscription's `room`: messages are
    parked, and must not keep others out. A negative one gives room back, which need not be done at once. `widens`: they
    are for a consumer with `Subscribe.most` whose handlers are fast, or whose messages are parked, and are never given
    back.
    """

    consumer: int
    messages: int
    widens: bool = False


@dataclass(frozen=True, slots=True)
class Stop:
    """The consumer must stop; the application sees `error`."""

    error: RedeliveryError


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Start a consumer. `window`: messages that the broker may leave unsettled here, besides those that are parked.

    `room`: so many more may be parked. Where there is flow, and where the window grows, `Credit` asks for it when
    they are; a consumer that cannot be given it later has all of it at once, with the window.

    `most`: the window may grow to so many messages, by `Credit`, `room` not counted; 0: it stays what it is.

    `ordering`: what the consumer promises. Messages that come by several ways may come back in another order, and a
    message group may be bound to one of them.

    `epoch`: the connection that it is made for (0: any). On another one it is dropped, with what follows it in the
    same call: that connection has a `Subscribe` of its own.

    `browse`: show what is on the queue and take nothing: what arrives is never settled. `Credit` asks for so many more,
    where there is flow; `Browsed` tells the end. Refused where the capabilities have no `browse`.

    `existing`: the queue is not to be made, where the broker can be told so: one that is not there is refused.

    `in_step`: a copy is sent only when the broker has carried out the acceptances before it, so that a kill never
    leaves more messages twice than have a copy on its way. Where a broker takes all in order nothing is to be done.

    `private`: nobody else uses the queue: where it would stay for ever, the broker is asked to drop it when it is idle.

    `hold`: seconds that its policies may have it hold a message; None: without end.

    `rescheduled`: the broker is to hold what waits for its redelivery; refused where it cannot do so in this queue.

    `dead_letter`: where copies may have to go; `Subscribed` reports an error if that can be found out to be impossible.
    """

    consumer: int
    destination: str
    window: int
    selector: str | None = None
    subscription: str | None = None
    dead_letter: str | None = None
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


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """End a consumer: the broker takes back what is not settled."""

    consumer: int


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message, and report `Sent` with the same token when the broker has confirmed it."""

    token: int
    message: Outgoing


@dataclass(frozen=True, slots=True)
class Commit:
    """Accept deliveries and send messages in one transaction, all or nothing; `Sent` with the same token is its answer.

    Only where the capabilities have `transactions`. One delivery of an older epoch, and nothing of it is done.
    """

    token: int
    deliveries: Sequence[Delivery]
    messages: Sequence[Outgoing]


def outdated(commands: Sequence[AdapterCommand], epoch: int) -> bool:
    """Whether commands begin a consumer on another connection than the one of this epoch."""
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
    | TookBack
    | PolicyFault
    | BreakerChanged
    | Release
    | Credit
    | Stop
)

"""Events: the closed union of values that `Engine.feed` takes.

They are plain slotted classes, not frozen dataclasses: one is made per message, and freezing costs 0.4 µs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from redelivery.core.breaker import Weight
    from redelivery.core.capabilities import Capabilities
    from redelivery.core.commands import Stop
    from redelivery.core.delivery import Cause, Delivery, Record
    from redelivery.core.ledger_entry import Entry
    from redelivery.core.policy.redelivery_policy import Policy
    from redelivery.errors import RedeliveryError

__all__ = [
    "Alone",
    "Arrived",
    "Committed",
    "Confirmed",
    "Connected",
    "ConnectionLost",
    "Continued",
    "Deferred",
    "Discarded",
    "Drained",
    "Event",
    "Failed",
    "Inherited",
    "Known",
    "Paused",
    "Poisoned",
    "QueueFound",
    "Released",
    "Result",
    "Resumed",
    "Succeeded",
    "TakenBack",
    "Tick",
    "Wanted",
]


class Connected:
    """A connection is established. `address`: its broker, because brokers make message ids of their own.

    `since`: when the connection began, for a consumer that starts on it later; None: now.
    """

    __slots__ = ("address", "capabilities", "epoch", "since")

    def __init__(
        self, epoch: int, capabilities: Capabilities, address: str = "", since: float | None = None
    ) -> None:
        self.epoch = epoch
        self.capabilities = capabilities
        self.address = address
        self.since = since


class ConnectionLost:
    """A connection is gone.

    Args:
        epoch: Epoch of the connection.
        error: Why it ended.
        suspect: Message over which the broker closed it, as `Delivery.proof`, or a `HeadOfQueue`; None: not known.
        consumer: Consumer that received it; it alone stops if that happens too often. None: every consumer stops.
        closed: True if only this consumer closes; the broker is still there.
        stop: Ends consumers over it, as decided by `ProtocolPoison`; None: they reconnect.
    """

    __slots__ = ("closed", "consumer", "epoch", "error", "stop", "suspect")

    def __init__(
        self,
        epoch: int,
        error: RedeliveryError,
        suspect: Hashable | None = None,
        consumer: int | None = None,
        *,
        closed: bool = False,
        stop: Stop | None = None,
    ) -> None:
        self.epoch = epoch
        self.error = error
        self.closed = closed
        self.suspect = suspect
        self.consumer = consumer
        self.stop = stop


class Arrived:
    """Messages arrived for a consumer.

    Args:
        consumer: Number of the consumer.
        deliveries: Its deliveries, oldest first.
    """

    __slots__ = ("consumer", "deliveries")

    def __init__(self, consumer: int, deliveries: Sequence[Delivery]) -> None:
        self.consumer = consumer
        self.deliveries = deliveries


class QueueFound:
    """The broker reported the capabilities of a consumer's queue, which differ from those of other queues.

    Args:
        consumer: Number of the consumer.
        capabilities: What the broker can do with its queue.
    """

    __slots__ = ("capabilities", "consumer")

    def __init__(self, consumer: int, capabilities: Capabilities) -> None:
        self.consumer = consumer
        self.capabilities = capabilities


class TakenBack:
    """The broker has taken back deliveries that were not settled in time; their connection still stands.

    Args:
        consumer: Number of the consumer.
        deliveries: Deliveries that can no longer be settled.
    """

    __slots__ = ("consumer", "deliveries")

    def __init__(self, consumer: int, deliveries: Sequence[Delivery]) -> None:
        self.consumer = consumer
        self.deliveries = deliveries


class Inherited:
    """Records that an earlier process had of messages which this one receives; fed before their `Arrived`."""

    __slots__ = ("records",)

    def __init__(self, records: Mapping[Hashable, Record]) -> None:
        self.records = records


class Resumed:
    """A delivery that runs already: it was dispatched elsewhere. Its record holds what is known of it."""

    __slots__ = ("delivery",)

    def __init__(self, delivery: Delivery) -> None:
        self.delivery = delivery


class Wanted:
    """The application can take one more message."""

    __slots__ = ()


class Alone:
    """The application can take one more message, and runs none in this process: a crash suspect may run."""

    __slots__ = ()


class Known:
    """The ledger's reply to `LookUp`: the entry of a message that is to be dispatched; None: no entry."""

    __slots__ = ("delivery", "entry")

    def __init__(self, delivery: Delivery, entry: Entry | None) -> None:
        self.delivery = delivery
        self.entry = entry


class Result:
    """Result of a delivery: base of `Succeeded`, `Failed` and the others below."""

    __slots__ = ("delivery",)

    def __init__(self, delivery: Delivery) -> None:
        self.delivery = delivery


class Succeeded(Result):
    """A handler returned, or the application accepted the message."""

    __slots__ = ()


class Committed(Result):
    """The delivery's transaction has been committed: it is settled at the broker."""

    __slots__ = ()


class Released(Result):
    """The application releases the message, uncounted."""

    __slots__ = ()


class Failed(Result):
    """A handler failed. `policy`: replaces the destination's (a classifier chose it); `weight`: for the breaker."""

    __slots__ = ("cause", "policy", "weight")

    def __init__(
        self, delivery: Delivery, cause: Cause, policy: Policy | None = None, weight: Weight = "maybe"
    ) -> None:
        self.delivery = delivery
        self.cause = cause
        self.policy = policy
        self.weight: Weight = weight


class Poisoned(Result):
    """The application asks to dead-letter the message now."""

    __slots__ = ("cause",)

    def __init__(self, delivery: Delivery, cause: Cause) -> None:
        self.delivery = delivery
        self.cause = cause


class Discarded(Result):
    """The application discards the message: it is accepted, and counted as discarded."""

    __slots__ = ("cause",)

    def __init__(self, delivery: Delivery, cause: Cause) -> None:
        self.delivery = delivery
        self.cause = cause


class Deferred(Result):
    """The application defers the message for `delay` seconds, uncharged up to the maximum of deferrals.

    `counted` is false for a message that is rolled back together with a charged one, whose redeliveries bound both.
    """

    __slots__ = ("cause", "counted", "delay")

    def __init__(self, delivery: Delivery, delay: float, cause: Cause, *, counted: bool = True) -> None:
        self.delivery = delivery
        self.delay = delay
        self.cause = cause
        self.counted = counted


class Confirmed(Result):
    """The broker answered a poison acknowledgement.

    Args:
        delivery: Delivery that it was about.
        error: Why the broker refused it; None: the dead letter is confirmed.
        final: True if the copy can never be sent over this protocol. It is not retried, and the message is set aside.
    """

    __slots__ = ("error", "final")

    def __init__(
        self, delivery: Delivery, error: RedeliveryError | None = None, *, final: bool = False
    ) -> None:
        self.delivery = delivery
        self.error = error
        self.final = final


class Tick:
    """Time has passed."""

    __slots__ = ()


class Paused:
    """Stop dispatching until `Continued`. Prefetched messages are released where a release is not counted."""

    __slots__ = ()


class Continued:
    """Resume dispatching."""

    __slots__ = ()


class Drained:
    """Stop dispatching for good; release the messages that are not running."""

    __slots__ = ()


Event = (
    Succeeded
    | Committed
    | Wanted
    | Known
    | Alone
    | Arrived
    | Failed
    | Poisoned
    | Discarded
    | Deferred
    | Released
    | Resumed
    | Confirmed
    | Tick
    | Connected
    | ConnectionLost
    | QueueFound
    | TakenBack
    | Inherited
    | Paused
    | Continued
    | Drained
)

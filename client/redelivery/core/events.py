"""What can happen: the closed union of events that `Engine.feed` takes.

Events are plain slotted classes, not frozen dataclasses: one is made per message, and freezing costs 0.4 µs.
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
    """A connection stands. `address`: where to, for the ids that brokers make are each broker's own.

    `since`: when it began, for a consumer that begins on it later; None: now.
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
    """The connection of `epoch` is gone. `stop`: the end of consumers over it, decided by `ProtocolPoison`.

    `suspect` is the message the broker closed it over, if one is known, and `consumer` the one that it came for: only
    that one stops when it happens too often. None: nobody knows, so each consumer of the connection stops.
    `closed`: only for this consumer, which closes; the broker has not gone away.
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
    """Messages came in for a consumer, oldest first."""

    __slots__ = ("consumer", "deliveries")

    def __init__(self, consumer: int, deliveries: Sequence[Delivery]) -> None:
        self.consumer = consumer
        self.deliveries = deliveries


class QueueFound:
    """The broker has said what it can do with the queue of a consumer, which is more or less than with others."""

    __slots__ = ("capabilities",)

    def __init__(self, capabilities: Capabilities) -> None:
        self.capabilities = capabilities


class TakenBack:
    """The broker has taken deliveries back, which were not settled in time; their connection stands."""

    __slots__ = ("consumer", "deliveries")

    def __init__(self, consumer: int, deliveries: Sequence[Delivery]) -> None:
        self.consumer = consumer
        self.deliveries = deliveries


class Inherited:
    """What an earlier process knew of messages that this one receives: fed before their `Arrived`."""

    __slots__ = ("records",)

    def __init__(self, records: Mapping[Hashable, Record]) -> None:
        self.records = records


class Resumed:
    """A delivery runs already: its dispatch was begun elsewhere. What is known of it is in its record."""

    __slots__ = ("delivery",)

    def __init__(self, delivery: Delivery) -> None:
        self.delivery = delivery


class Wanted:
    """The application has room for one more message."""

    __slots__ = ()


class Alone:
    """The application has room for one more message, and runs nothing else in this process: a suspect may go."""

    __slots__ = ()


class Known:
    """What the ledger knows of a message that is to be dispatched: the answer to `LookUp`. None: nothing."""

    __slots__ = ("delivery", "entry")

    def __init__(self, delivery: Delivery, entry: Entry | None) -> None:
        self.delivery = delivery
        self.entry = entry


class Result:
    """What becomes of a delivery: the interface of `Succeeded`, `Failed` and the others that follow."""

    __slots__ = ("delivery",)

    def __init__(self, delivery: Delivery) -> None:
        self.delivery = delivery


class Succeeded(Result):
    """A handler finished, or the application accepted."""

    __slots__ = ()


class Committed(Result):
    """Its transaction has been committed, which has settled it at the broker."""

    __slots__ = ()


class Released(Result):
    """The application gives the message back, uncounted."""

    __slots__ = ()


class Failed(Result):
    """A handler failed. `policy` overrides the destination's (a classifier's choice); `weight`: for the breaker."""

    __slots__ = ("cause", "policy", "weight")

    def __init__(
        self, delivery: Delivery, cause: Cause, policy: Policy | None = None, weight: Weight = "maybe"
    ) -> None:
        self.delivery = delivery
        self.cause = cause
        self.policy = policy
        self.weight: Weight = weight


class Poisoned(Result):
    """The application wants the message dead-lettered now."""

    __slots__ = ("cause",)

    def __init__(self, delivery: Delivery, cause: Cause) -> None:
        self.delivery = delivery
        self.cause = cause


class Discarded(Result):
    """The application wants the message dropped: accepted, and counted as discarded."""

    __slots__ = ("cause",)

    def __init__(self, delivery: Delivery, cause: Cause) -> None:
        self.delivery = delivery
        self.cause = cause


class Deferred(Result):
    """The application wants the message later: `delay` in seconds, uncharged up to the maximum of deferrals.

    `counted` is false for what is rolled back beside a message that is charged: both end with that one's redeliveries.
    """

    __slots__ = ("cause", "counted", "delay")

    def __init__(self, delivery: Delivery, delay: float, cause: Cause, *, counted: bool = True) -> None:
        self.delivery = delivery
        self.delay = delay
        self.cause = cause
        self.counted = counted


class Confirmed(Result):
    """The broker answered a poison acknowledgement: `error` is None when the dead letter is safe.

    `final`: the copy can never be sent over this protocol: it is not tried again, and the message is set aside.
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
    """Dispatch nothing until `Continued`. What was never dispatched is given back, where a release is not counted."""

    __slots__ = ()


class Continued:
    """Dispatch again."""

    __slots__ = ()


class Drained:
    """Dispatch no more; what waits is given back."""

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

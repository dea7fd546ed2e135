"""Events of a connection, for `observers=[…]`: what happened to messages, consumers and the connection.

An observer is a callable that gets every event, or an `Observer`, of which only the overridden methods are called. No
lock is held during a call. It must not block: the library waits until the call has ended. An exception that it raises
is logged, once for each observer and type, and changes nothing. The events of one message are in order.

`fields()` of an event has no body, header or password. The library makes events; an application only reads them. They
are not frozen, because freezing costs 0.4 µs for each message.
"""

from __future__ import annotations

from redelivery.events.event import ConsumerEvent, Event, MessageEvent
from redelivery.events.observed_connection import ObservedConnection
from redelivery.events.observer import (
    Observer,
)
from redelivery.events.of_connection import (
    Connected,
    ConnectionLost,
    DrainBegun,
    Drained,
    GivenUp,
    ManyDropped,
    Sent,
    Unaccounted,
)
from redelivery.events.of_consumer import (
    BreakerChanged,
    ConsumerRefused,
    ConsumerStarted,
    ConsumerStopped,
    CreditSpent,
    ManyLosses,
    ParkingFull,
    Paused,
    PolicyFault,
    QueueAdvice,
    QueueCaution,
    Received,
    ResultStale,
    Resumed,
    TakenBack,
    WorkerEnded,
)
from redelivery.events.of_handling import (
    Finished,
    NextStep,
    Started,
    Verdict,
)
from redelivery.events.of_message import (
    DeadLettered,
    DeadLetterFailed,
    DeadLettering,
    Deduplicated,
    Dropped,
    HandlerOverdue,
    Parked,
    SetAside,
    Unanswered,
)
from redelivery.events.retry_and_death import Death, Retry

__all__ = [
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
    "ObservedConnection",
    "Observer",
    "Parked",
    "ParkingFull",
    "Paused",
    "PolicyFault",
    "QueueAdvice",
    "QueueCaution",
    "Received",
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
]

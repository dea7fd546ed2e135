"""The states of a delivery, the table of all transitions between them, and the one place that changes a state.

| state | the delivery |
|---|---|
| ready | has arrived and may be dispatched |
| running | is with a handler, or with a thread that looks it up in the ledger first |
| parked | is kept here, unacknowledged, until its due time, or until it may run exclusively |
| waiting | is the broker's second delivery of a message whose handler still runs for the first one |
| settling | has been dead-lettered, or copied for later; the broker's answer is outstanding |
| aside | cannot be dead-lettered, or not be settled: is kept here, unacknowledged, and never dispatched |
| held | was released, and is kept here, unacknowledged, until the consumer closes or has no room for anything else |
| settled | is accepted, released or dead-lettered: the broker has it no more for this consumer |
| lost | belongs to a connection that is gone: no command for it is ever written |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from redelivery.core.events import (
    Alone,
    Arrived,
    Committed,
    Confirmed,
    ConnectionLost,
    Deferred,
    Discarded,
    Drained,
    Failed,
    Known,
    Paused,
    Poisoned,
    Released,
    Resumed,
    Succeeded,
    TakenBack,
    Tick,
    Wanted,
)  # fmt: skip

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redelivery.core.delivery import Delivery, State

__all__ = ["TRANSITIONS", "Transition", "enter", "enter_all"]


class Transition(NamedTuple):
    """One row: the states before and after, the events that may cause it, and why."""

    before: State
    after: State
    events: tuple[type, ...]
    why: str


RESULT = (Succeeded, Failed, Poisoned, Discarded, Committed, Deferred, Released, Known)
"""Events that end a dispatch; with a ledger its reply may do so before the handler begins."""
GIVEN_BACK = (Failed, Poisoned, Deferred, Released, Known)
"""Events that may end a dispatch without settling the message."""
WITHHELD = (Failed, Tick, Paused, Drained)
"""Events that may release a message never dispatched: the breaker opens, or is open for long; a pause, or the end."""
GONE = (ConnectionLost, TakenBack)
"""Events that end a delivery without a result."""

TRANSITIONS = (
    # An arrival.
    Transition("ready", "parked", (Arrived,), "it is remembered and not due yet, or a delayed copy came early"),
    Transition("ready", "waiting", (Arrived,), "a handler still has the message, over a connection that is gone"),
    Transition("ready", "settling", (Arrived, Wanted), "its verdict is remembered; or it has expired, or is used up"),
    Transition("ready", "settled", (Arrived, Wanted, *WITHHELD), "accepted before; expired and dropped; or released"),
    Transition("ready", "held", (Arrived, Wanted, Drained), "it has to go back, and the broker takes nothing back"),
    Transition("ready", "aside", (Arrived, Wanted), "its verdict is remembered, or has come; or it cannot be settled"),
    # A dispatch.
    Transition("ready", "running", (Wanted, Resumed), "it is dispatched"),
    Transition("parked", "running", (Wanted, Alone), "its due time has come, or its exclusive run"),
    Transition("parked", "parked", (Wanted,), "another consumer's handler, for which it waited, has failed"),
    Transition("parked", "settling", (Wanted, Alone), "it has expired while it was parked; or that handler gave it up"),
    Transition("parked", "settled", (Wanted, Alone, Tick, Drained), "expired and dropped; or released; or accepted"),
    Transition("parked", "aside", (Wanted, Alone), "it has expired, or that handler gave it up: it cannot be copied"),
    Transition("parked", "held", (Wanted, Alone, Drained), "it has to go back, and the broker takes nothing back"),
    # A result.
    Transition("running", "parked", (Failed, Deferred, Known), "it is redelivered later, or needs an exclusive run"),
    Transition("running", "settling", (Failed, Poisoned, Deferred, Known), "it is poison, or the broker delays a copy"),
    Transition("running", "settled", RESULT, "it is accepted; released; or poison that is dropped"),
    Transition("running", "held", GIVEN_BACK, "it has to go back, and the broker takes nothing back"),
    Transition("running", "aside", (Failed, Poisoned, Deferred, Known), "it is poison that cannot be copied"),
    Transition("running", "lost", RESULT, "a result for a connection that is gone is stale"),
    # The result of the first delivery decides for the second one.
    Transition("waiting", "parked", (Failed, Deferred, Known), "the handler failed: it is redelivered later"),
    Transition("waiting", "settling", (Failed, Poisoned, Deferred), "the handler failed for the last time"),
    Transition("waiting", "settled", RESULT, "the handler succeeded, so it is accepted unseen; or it is released"),
    Transition("waiting", "aside", (Failed, Poisoned, Deferred), "the handler gave it up, and it cannot be copied"),
    Transition("waiting", "held", GIVEN_BACK, "it has to go back, and the broker takes nothing back"),
    # The broker's answer.
    Transition("settling", "settling", (Tick,), "it was refused, and is tried again"),
    Transition("settling", "settled", (Confirmed, Tick), "the dead letter, or the copy, is safe; or it is dropped"),
    Transition("settling", "held", (Confirmed, Tick), "it can be dead-lettered no more: the consumer stops"),
    Transition("settling", "aside", (Confirmed,), "its copy can never be sent over this protocol"),
    Transition("aside", "settled", (Tick,), "it is released before the broker's limit, and redelivered"),
    Transition("held", "ready", (Wanted,), "it has made way for a fresh one, or nothing else can come"),
    # The end of a connection, or of a broker's time limit.
    Transition("ready", "lost", GONE, "the broker delivers it again"),
    Transition("parked", "lost", GONE, "the broker delivers it again; count and due time are remembered"),
    Transition("waiting", "lost", GONE, "the broker delivers it again"),
    Transition("settling", "lost", GONE, "the broker may deliver it again; its verdict is remembered"),
    Transition("aside", "lost", GONE, "the broker delivers it again; that it is set aside is remembered"),
    Transition("held", "lost", GONE, "the broker delivers it again, or to others"),
)  # fmt: skip


def enter(delivery: Delivery, state: State) -> None:
    """Change the state of a delivery. Every test checks that the table has the transition."""
    delivery.state = state


def enter_all(deliveries: Sequence[Delivery], state: State) -> None:
    """Change the state of many deliveries, without a call for each."""
    for delivery in deliveries:
        delivery.state = state

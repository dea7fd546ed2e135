"""Fields and names of events."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from redelivery import events
from redelivery.core.report import Report
from redelivery.events.event import Event

if TYPE_CHECKING:
    from redelivery.core.commands import Subscribe
    from redelivery.core.delivery import Delivery

CONSUMER: Subscribe = SimpleNamespace(destination="queue://orders.>", consumer=3)  # type: ignore[assignment]
DELIVERY: Delivery = SimpleNamespace(  # type: ignore[assignment]
    destination="queue://orders.eu", message_id="ID:1", headers={"redeliveryId": "uuid"}, record=None
)


def test_a_message_event_names_the_consumer_and_the_message() -> None:
    """A message's event has the consumer's destination, with its wildcards, and the message's own."""
    event = events.Dropped(12.5, CONSUMER, DELIVERY, "expired")
    assert event.fields() == {
        "event": "dropped",
        "destination": "queue://orders.>",
        "consumer": 3,
        "message_destination": "queue://orders.eu",
        "message_id": "ID:1",
        "at": 12.5,
        "cause": "expired",
    }
    assert event.sent_as == "uuid"


def test_errors_are_named_by_their_type() -> None:
    """The field of an error is its type: its text may have an application's secrets."""
    event = events.Sent(1.0, "queue://orders", "uuid", 0.5, ValueError("hunter2"))
    assert event.fields()["error"] == "ValueError"
    assert "hunter2" not in repr(event)


def test_a_drain_has_the_counts_that_are_not_zero() -> None:
    """The event of a drain has only counters that are not zero, for a short log line."""
    event = events.Drained(1.0, Report(accepted=2, stale=1), 0.25)
    assert event.fields() == {"event": "drained", "at": 1.0, "seconds": 0.25, "accepted": 2, "stale": 1}


def test_each_event_has_a_name_of_its_own() -> None:
    """Each event class has a name of its own, for logs and labels."""
    kinds: list[Any] = [getattr(events, name) for name in events.__all__]
    names = [
        kind.name
        for kind in kinds
        if isinstance(kind, type)
        and issubclass(kind, Event)
        and kind not in (Event, events.ConsumerEvent, events.MessageEvent)
    ]
    assert len(set(names)) == len(names) > 20
    assert json.dumps(names) == json.dumps(names).lower()

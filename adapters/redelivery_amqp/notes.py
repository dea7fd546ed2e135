"""Notes in message annotations: RabbitMQ 4.3 keeps them for messages of quorum queues, over deliveries and kills."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redelivery.core.commands import PoisonAck

__all__ = ["annotations_of", "noted", "notes_of"]

# The broker ends the session over an annotation with another name.
_PREFIX = "x-opt-"
_OURS = f"{_PREFIX}redelivery"
# Characters, as many as of a cause.
LONGEST_ID = 1024


def annotations_of(notes: Mapping[str, str | int]) -> dict[str, str | int]:
    """Return notes as annotations."""
    return {f"{_PREFIX}{name}": value for name, value in notes.items()}


def notes_of(command: PoisonAck) -> dict[str, str | int]:
    """Return the notes for a dead letter that the broker makes itself: the same as in the properties of a copy."""
    delivery = command.delivery
    notes: dict[str, str | int] = {
        "redeliveryCause": command.cause.text,
        "redeliveryCount": str(command.count),
        "redeliveryOriginalDestination": delivery.destination,
    }
    # All notes must fit in one frame. A longer id is left out; the message itself still has it.
    if delivery.message_id is not None and len(delivery.message_id) <= LONGEST_ID:
        notes["redeliveryOriginalId"] = delivery.message_id
    return notes


def noted(headers: Mapping[str, Any], annotations: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the properties of a message and its notes; a note replaces a property of the same name."""
    found = {
        name.removeprefix(_PREFIX): value for name, value in annotations.items() if name.startswith(_OURS)
    }
    return {**headers, **found} if found else headers

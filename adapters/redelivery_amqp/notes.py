"""Notes that RabbitMQ 4.3 keeps in the annotations of a message of a quorum queue, over deliveries and kills."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redelivery.core.commands import PoisonAck

__all__ = ["annotations_of", "noted", "notes_of"]

# The broker ends the session over an annotation with another name.
_PREFIX = "x-opt-"
_OURS = f"{_PREFIX}redelivery"
# Characters, as of a cause.
LONGEST_ID = 1024


def annotations_of(notes: Mapping[str, str | int]) -> dict[str, str | int]:
    """Return notes as annotations."""
    return {f"{_PREFIX}{name}": value for name, value in notes.items()}


def notes_of(command: PoisonAck) -> dict[str, str | int]:
    """Return what a dead letter is to tell that the broker makes itself: what a copy would tell."""
    delivery = command.delivery
    notes: dict[str, str | int] = {
        "redeliveryCause": command.cause.text,
        "redeliveryCount": str(command.count),
        "redeliveryOriginalDestination": delivery.destination,
    }
    # One frame holds all of them, and the message keeps its own.
    if delivery.message_id is not None and len(delivery.message_id) <= LONGEST_ID:
        notes["redeliveryOriginalId"] = delivery.message_id
    return notes


def noted(headers: Mapping[str, Any], annotations: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the properties of a message with what is noted on it: notes count more."""
    found = {
        name.removeprefix(_PREFIX): value for name, value in annotations.items() if name.startswith(_OURS)
    }
    return {**headers, **found} if found else headers

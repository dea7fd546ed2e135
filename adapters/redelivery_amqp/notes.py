"""Notes that RabbitMQ 4.3 keeps in the annotations of a message of a quorum queue, over deliveries and kills."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["annotations_of", "noted"]

# The broker ends the session over an annotation with another name.
_PREFIX = "x-opt-"
_OURS = f"{_PREFIX}redelivery"


def annotations_of(notes: Mapping[str, str | int]) -> dict[str, str | int]:
    """Return notes as annotations."""
    return {f"{_PREFIX}{name}": value for name, value in notes.items()}


def noted(headers: Mapping[str, Any], annotations: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the properties of a message with what is noted on it: notes count more."""
    found = {
        name.removeprefix(_PREFIX): value for name, value in annotations.items() if name.startswith(_OURS)
    }
    return {**headers, **found} if found else headers

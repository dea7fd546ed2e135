"""Cautions about queues among the events of a connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery import events

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["cautions"]


def cautions(seen: Iterable[object]) -> list[str]:
    """Return the texts of the cautions, in their order."""
    return [each.text for each in seen if isinstance(each, events.QueueCaution)]

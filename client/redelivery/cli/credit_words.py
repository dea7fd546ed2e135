"""Credit of a consumer, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.core.credit_pace import MOST_CREDIT, first_credit

if TYPE_CHECKING:
    from redelivery.core.destination import Destination
    from redelivery.settings import Settings

__all__ = ["credit_words"]


def credit_words(settings: Settings, destination: Destination | None) -> str:
    """Return the credit of a plain consumer of a destination; None: of a queue."""
    if destination is not None and destination.is_topic:
        return f"{settings.topic_credit:,}"
    if settings.credit is not None:
        return f"{settings.credit:,}"
    if destination is not None and destination.kind != "queue":
        return f"{MOST_CREDIT:,}"
    return f"auto, begins with {first_credit(1)} (one worker), at most {MOST_CREDIT:,}"

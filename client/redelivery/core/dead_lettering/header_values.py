"""Properties of a dead letter as this library writes them; None for a value that another producer has written there.

Every producer can set these properties, to values of any type and size. No reader raises: an absurd value counts as
absent, and the dead letter can still be shown, redriven and purged.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from redelivery.core.cause import CAUSE_LIMIT

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["count_in", "moment", "text_in", "time_in"]

# Digits of a count that is read as a number: Python refuses more than 4,300, and no broker's counter reaches 19.
DIGITS = 18


def text_in(headers: Mapping[str, Any], name: str) -> str | None:
    """Return a text property, cut to the length of a cause; otherwise None."""
    value = headers.get(name)
    return value[:CAUSE_LIMIT] if isinstance(value, str) and value else None


def count_in(headers: Mapping[str, Any], name: str) -> int | None:
    """Return a property that is a whole number of 0 or more, as a number or as text; otherwise None."""
    value = headers.get(name)
    if isinstance(value, str):
        return int(value) if value.isascii() and value.isdigit() and len(value) <= DIGITS else None
    if isinstance(value, float):
        # Excludes infinity and NaN.
        value = int(value) if value.is_integer() else None
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value < 10**DIGITS else None


def time_in(headers: Mapping[str, Any], name: str) -> datetime | None:
    """Return a property that is an ISO 8601 time, in UTC; otherwise None."""
    value = headers.get(name)
    if not isinstance(value, str):
        return None
    try:
        at = datetime.fromisoformat(value)
        return at.astimezone(UTC) if at.tzinfo is not None else at.replace(tzinfo=UTC)
    # `0001-01-01T00:00:00+23:59` is before Python's first day.
    except (ValueError, OverflowError):
        return None


def moment(seconds: float | None) -> datetime | None:
    """Return seconds since the Unix epoch as a time in UTC; None if there is none, or no such time."""
    try:
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None

"""Seconds since the Unix epoch as dates, up to the calendar's last year, 9999."""

from __future__ import annotations

from datetime import UTC, datetime

__all__ = ["LAST", "calendar_time"]

LAST = datetime.max.replace(tzinfo=UTC)
"""Last moment that has a date."""


def calendar_time(seconds: float) -> datetime | None:
    """Return the date in UTC; None if it is beyond the calendar, as an expiration that means "never" is."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None

"""Ids, times and nested properties of AMQP as an application sees them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, cast

__all__ = ["text_of", "time_of", "with_text_keys"]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def text_of(identity: object) -> str:
    """Return an id as text: a binary one in hexadecimal digits."""
    return identity.hex() if isinstance(identity, bytes) else str(identity)


def time_of(milliseconds: int | None) -> datetime | None:
    """Return a time of the protocol's, or None where there is none, or none that a calendar has."""
    if not milliseconds:
        return None
    try:
        return EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None


def with_text_keys(value: Any) -> Any:
    """Return a decoded value, which is not nested deep, whose maps have text as keys: JSON has no others."""
    if isinstance(value, dict):
        entries = cast("dict[object, object]", value)
        return {str(name): with_text_keys(inner) for name, inner in entries.items()}
    if isinstance(value, list):
        return [with_text_keys(inner) for inner in cast("list[object]", value)]
    return value

"""Values as proton decodes them, made plain: no views of buffers, no types of proton's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import proton

from redelivery_amqp.codec import Timestamp

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["plain", "plain_bytes", "text_of", "time_of"]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_PLAIN: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (memoryview, bytes),
    (dict, lambda value: {plain(key): plain(inner) for key, inner in value.items()}),
    (list, lambda value: [plain(inner) for inner in value]),
    (proton.Described, lambda value: plain(value.value)),
    (proton.timestamp, Timestamp),
    (bool, bool),
    (int, int),
    (float, float),
    (str, str),
)


def plain(value: Any) -> Any:
    """Return a decoded value as the application should see it."""
    for kind, made in _PLAIN:
        if isinstance(value, kind):
            return made(value)
    return value


def plain_bytes(value: Any) -> Any:
    """Return a decoded value that does not depend on the message it was decoded from; its type stays."""
    return value.tobytes() if isinstance(value, memoryview) else value


def text_of(identity: object) -> str:
    """Return an id as text: a binary one in hexadecimal digits."""
    return identity.hex() if isinstance(identity, bytes | memoryview) else str(identity)


def time_of(milliseconds: int | None) -> datetime | None:
    """Return a time of the protocol's, or None where there is none, or none that a calendar has."""
    if not milliseconds:
        return None
    try:
        return EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None

"""Values as proton decodes them, made plain: no views of buffers, no types of proton's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import proton

from redelivery_amqp.codec import Timestamp

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["plain", "plain_bytes", "text_of"]

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

"""Fields of a message's header and properties sections, and their types."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from redelivery_amqp import codec

__all__ = [
    "CONTENT_ENCODING",
    "CONTENT_TYPE",
    "CORRELATION_ID",
    "CREATION",
    "DELIVERY_COUNT",
    "DURABLE",
    "EXPIRY",
    "FIRST_ACQUIRER",
    "GROUP_ID",
    "GROUP_SEQUENCE",
    "HEADER_FIELDS",
    "LASTING",
    "MESSAGE_ID",
    "PRIORITY",
    "PROPERTIES_FIELDS",
    "REPLY_KINDS",
    "REPLY_TO",
    "REPLY_TO_GROUP",
    "SUBJECT",
    "TO",
    "TTL",
    "USER_ID",
    "typed",
]

# First bytes of the fields of a header without a time to live, as brokers write it: durable, priority, null.
LASTING = frozenset(
    [bytes((durable, 0x50, priority, 0x40)) for durable in (0x40, 0x41, 0x42) for priority in range(10)]
)

HEADER_FIELDS, PROPERTIES_FIELDS = 5, 13
# AMQP 1.0 part 3, 3.2.1 and 3.2.4.
DURABLE, PRIORITY, TTL, FIRST_ACQUIRER, DELIVERY_COUNT = range(HEADER_FIELDS)
(
    MESSAGE_ID, USER_ID, TO, SUBJECT, REPLY_TO, CORRELATION_ID, CONTENT_TYPE, CONTENT_ENCODING, EXPIRY, CREATION,
    GROUP_ID, GROUP_SEQUENCE, REPLY_TO_GROUP,
) = range(PROPERTIES_FIELDS)  # fmt: skip
# Of the JMS mapping's annotations.
REPLY_KINDS = {0: "queue", 1: "topic", 2: "temp-queue", 3: "temp-topic"}

_IDENTITY = (int, str, bytes, UUID)
_KINDS: dict[int, tuple[type | tuple[type, ...], ...]] = {
    codec.HEADER: (bool, int, int, bool, int),
    codec.PROPERTIES: (_IDENTITY, bytes, str, str, str, _IDENTITY, str, str, int, int, str, int, str),
}


# Combinations of field types that were correct: most messages of a queue have the same ones.
_RIGHT: set[tuple[int, tuple[type, ...]]] = set()
_MOST_RIGHT = 1000


def typed(fields: list[Any], code: int) -> list[Any]:
    """Return the fields of a section; a field with a wrong type is None."""
    found = code, tuple(map(type, fields))
    if found in _RIGHT:
        return fields
    kinds = _KINDS[code]
    right = [
        # In Python a boolean is an integer.
        field if isinstance(field, kind) and (field.__class__ is not bool or kind is bool) else None
        for field, kind in zip(fields, kinds, strict=False)
    ]
    if len(_RIGHT) < _MOST_RIGHT and found[1] == tuple(map(type, right)):
        _RIGHT.add(found)
    return right

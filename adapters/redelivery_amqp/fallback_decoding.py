"""Messages that our own decoder does not know, by proton's; and those that nobody can decode.

A broker may pass on what a producer sent without looking into it. A message that makes no sense, or part of which does
not, must neither break the connection, on which it would come again and again, nor lose a byte: what can be read is
shown, and the rest is as if it were not there.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import proton

from redelivery_amqp import codec
from redelivery_amqp.plain_values import plain

__all__ = ["decoded", "fields_of", "rewritten", "typed"]

# What proton's decoder raises for bytes that make no sense: nothing in its documentation, all of these in trials.
_NONSENSE = (proton.ProtonException, ValueError, TypeError, AttributeError, LookupError, ArithmeticError)
_IDENTITY = (int, str, bytes, UUID)
_KINDS: dict[int, tuple[type | tuple[type, ...], ...]] = {
    codec.HEADER: (bool, int, int, bool, int),
    codec.PROPERTIES: (_IDENTITY, bytes, str, str, str, _IDENTITY, str, str, int, int, str, int, str),
}


def decoded(raw: bytes) -> proton.Message | None:
    """Return a message as proton decodes it, or None where it cannot."""
    message = proton.Message()
    try:
        message.decode(raw)
        # It looks at text when it is asked for it.
        fields_of(message, codec.PROPERTIES)
    except _NONSENSE:
        return None
    maps: list[object] = [message.properties, message.annotations]  # whatever was in their place
    return message if all(one is None or isinstance(one, dict) for one in maps) else None


def rewritten(raw: bytes) -> tuple[bytes, list[tuple[int, int, int]]]:
    """Return a message as proton would have written it, for its sections could not be found."""
    message = decoded(raw)
    try:
        found = b"" if message is None else bytes(message.encode())
        places = codec.sections(found)
    except _NONSENSE:
        return raw, []
    # proton takes nonsense for a message that has nothing.
    return (found, places) if any(code in codec.BODIES for code, _, _ in places) else (raw, [])


def fields_of(message: proton.Message, code: int) -> list[Any]:
    """Return the fields of the header or the properties section."""
    if code == codec.HEADER:
        ttl = int(message.ttl * 1000)
        return [message.durable, message.priority, ttl, message.first_acquirer, message.delivery_count]
    times = [int(t * 1000) or None for t in (message.expiry_time, message.creation_time)]
    # proton 0.40 makes the symbol `None` of a content type that is not there.
    symbols = (str(message.content_type), str(message.content_encoding))
    types = [None if kind == "None" else kind for kind in symbols]
    fields = [
        message.id, message.user_id, message.address, message.subject, message.reply_to, message.correlation_id,
        *types, *times, message.group_id, message.group_sequence, message.reply_to_group_id,
    ]  # fmt: skip
    return [plain(field) for field in fields]


def typed(fields: list[Any], code: int) -> list[Any]:
    """Return the fields of a section; one of a type that it cannot have is as if it were not there."""
    kinds = _KINDS[code]
    return [field if isinstance(field, kind) else None for field, kind in zip(fields, kinds, strict=False)]

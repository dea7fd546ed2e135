"""Columns of a message."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redelivery.core.delivery import Delivery

__all__ = ["COLUMNS", "ERROR", "PLACE", "TEXT", "message_column", "stream_schema"]


# ---- Schema ----------------------------------------------------------------------------------------------

TEXT = "text"
"""The decoded body: only with `decode=text` and `decode=json`."""
ERROR = "_error"
"""Why a body could not be decoded: only with `onDecodeError=permissive`."""
PLACE = "_place"
"""Place of the row in the write-ahead log, by which `process` identifies it: of streams only."""

COLUMNS: tuple[pa.Field, ...] = (
    pa.field("message_id", pa.string()),
    pa.field("destination", pa.string()),
    pa.field("body", pa.binary()),
    pa.field("properties", pa.map_(pa.string(), pa.string())),
    pa.field("content_type", pa.string()),
    pa.field("correlation_id", pa.string()),
    pa.field("reply_to", pa.string()),
    pa.field("timestamp", pa.timestamp("us", tz="UTC")),
    pa.field("redelivered", pa.bool_()),
    pa.field("delivery_count", pa.int32()),
)


def stream_schema(*, text: bool, error: bool) -> pa.Schema:
    """Return the columns that a stream can have, in order, with those of decoded bodies if asked for."""
    fields = list(COLUMNS)
    fields.insert(8, pa.field("delivered_at", pa.timestamp("us", tz="UTC")))
    fields += [pa.field(TEXT, pa.string())] * text + [pa.field(ERROR, pa.string())] * error
    return pa.schema([*fields, pa.field(PLACE, pa.int64())])


# ---- Message columns -------------------------------------------------------------------------------------
# Columns of messages, as a segment of a stream, a browsed queue and a drain show them.

_TYPES = {field.name: field.type for field in COLUMNS}


def message_column(name: str, deliveries: Sequence[Delivery]) -> pa.Array:
    """Return a column of messages: any of `schema.COLUMNS` but `message_id` and `delivery_count`.

    Args:
        name: Name of the column.
        deliveries: The messages, one for each row. They still have their bodies.
    """
    if name == "properties":
        return _properties(deliveries)
    return pa.array(list(map(attrgetter(name), deliveries)), _TYPES[name])


def _properties(deliveries: Sequence[Delivery]) -> pa.Array:
    keys: list[str] = []
    values: list[str | None] = []
    ends = [0]
    for delivery in deliveries:
        for key, value in delivery.headers.items():
            keys.append(key)
            values.append(value if isinstance(value, str) else _text(value))
        ends.append(len(keys))
    offsets, names = pa.array(ends, pa.int32()), pa.array(keys, pa.string())
    found: pa.Array = pa.MapArray.from_arrays(offsets, names, pa.array(values, pa.string()))
    return found


def _text(value: object) -> str | None:
    """Return a property that is not text as text."""
    if value is None or isinstance(value, bool):
        return None if value is None else str(value).lower()
    return value.hex() if isinstance(value, bytes) else str(value)

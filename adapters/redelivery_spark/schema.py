"""Columns of a message."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["COLUMNS", "ERROR", "PLACE", "TEXT", "stream_schema"]

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

"""The columns of a message, and what the log keeps of it besides."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["COLUMNS", "ERROR", "HIDDEN", "PLACE", "SEGMENT", "TEXT", "columns_for", "stream_schema"]

TEXT = "text"
"""The decoded body: only with `decode=text` and `decode=json`."""
ERROR = "_error"
"""Why a body could not be decoded: only with `onDecodeError=permissive`."""
PLACE = "_place"
"""The place of the row in the write-ahead log, which `process` knows it by: only of streams."""

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
HIDDEN: tuple[pa.Field, ...] = (
    pa.field("_kind", pa.string()),
    pa.field("_persistent", pa.bool_()),
    pa.field("_priority", pa.int16()),
    pa.field("_group", pa.string()),
    pa.field("_type", pa.string()),
    pa.field("_expires", pa.float64()),
    # JSON: application properties that are no text, by name.
    pa.field("_typed", pa.string()),
    # The broker's id of the message, where `message_id` is another.
    pa.field("_identity", pa.string()),
    # Whether the broker has the message until its row is done with.
    pa.field("_kept", pa.bool_()),
    # Number of the batch of its first arrival, and its row there; null: this batch.
    pa.field("_number", pa.int64()),
    pa.field("_at", pa.int32()),
)
"""What a dead letter must keep of its message, and what the log must know of a row; no column shows it."""

SEGMENT = pa.schema([*COLUMNS, pa.field(TEXT, pa.string()), pa.field(ERROR, pa.string()), *HIDDEN])


def columns_for(*, text: bool, error: bool) -> list[str]:
    """Return the names of the columns that Spark gets, in order."""
    return [field.name for field in COLUMNS] + [TEXT] * text + [ERROR] * error


def stream_schema(*, text: bool, error: bool) -> pa.Schema:
    """Return the columns that a stream can have, in order, those of decoded bodies if asked for."""
    fields = list(COLUMNS)
    fields.insert(8, pa.field("delivered_at", pa.timestamp("us", tz="UTC")))
    fields += [pa.field(TEXT, pa.string())] * text + [pa.field(ERROR, pa.string())] * error
    return pa.schema([*fields, pa.field(PLACE, pa.int64())])

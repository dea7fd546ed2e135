"""The columns of a batch read: a message's, and those that tell of a dead letter's death."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from redelivery.errors import RedeliveryError
from redelivery_spark.schema import ERROR, SEGMENT, TEXT, columns_for
from redelivery_spark.stream.expected_body import decoded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redelivery.dlq.dead_letter import DeadLetter
    from redelivery_spark.options.batch_options import ReadOptions

__all__ = ["DEATH", "STORED", "deaths_of", "shown", "shown_schema"]

DEATH: tuple[pa.Field, ...] = (
    pa.field("original_destination", pa.string()),
    pa.field("original_id", pa.string()),
    pa.field("cause", pa.string()),
    pa.field("redelivery_count", pa.int64()),
    pa.field("first_failure", pa.timestamp("us", tz="UTC")),
    pa.field("dead_lettered_at", pa.timestamp("us", tz="UTC")),
    pa.field("redrives", pa.int64()),
)
STORED = pa.schema([*SEGMENT, *DEATH])
"""What a segment of a drain has: whatever a later read of it may ask for."""


def shown_schema(options: ReadOptions) -> pa.Schema:
    """Return the columns that Spark gets, in order."""
    names = columns_for(text=options.text, error=options.error)
    return pa.schema([*(SEGMENT.field(name) for name in names), *(DEATH if options.dead_letters else ())])


def deaths_of(letters: Sequence[DeadLetter]) -> list[pa.Array]:
    """Return the columns that tell of deaths."""
    columns: tuple[list[Any], ...] = (
        [letter.original_destination for letter in letters],
        [letter.original_id for letter in letters],
        [letter.cause for letter in letters],
        [letter.redelivery_count for letter in letters],
        [letter.first_failure for letter in letters],
        [letter.died_at for letter in letters],
        [letter.redrives for letter in letters],
    )
    return [pa.array(column, field.type) for column, field in zip(columns, DEATH, strict=True)]


def shown(batch: pa.RecordBatch, options: ReadOptions) -> pa.RecordBatch:
    """Return what Spark gets of rows: decoded here, so that one drain can be read in several ways.

    Raises:
        RedeliveryError: a body cannot be decoded, and onDecodeError is `fail`.
    """
    schema = shown_schema(options)
    made: dict[str, pa.Array] = {}
    if options.text:
        found = [decoded(body, options) for body in batch.column("body").to_pylist()]
        if not options.error:
            for number, (_, error) in enumerate(found):
                if error is not None:
                    identity = batch.column("message_id")[number].as_py()
                    raise RedeliveryError(
                        f"message {identity} {error}; onDecodeError=permissive shows it, with a column _error"
                    )
        made[TEXT] = pa.array([text for text, _ in found], pa.string())
        made[ERROR] = pa.array([error for _, error in found], pa.string())
    arrays = [made[field.name] if field.name in made else batch.column(field.name) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)

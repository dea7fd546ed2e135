"""Columns of a batch read: those of a message, and those about the death of a dead letter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from redelivery.dlq.dead_letter import read_letter
from redelivery.errors import RedeliveryError
from redelivery_spark.executors.segment_reader import decoded
from redelivery_spark.schema import COLUMNS, ERROR, TEXT, message_column

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redelivery.core.delivery import Delivery
    from redelivery.dlq.dead_letter import DeadLetter
    from redelivery_spark.options.source_options import ReadOptions

__all__ = ["DEATH", "ROWS", "ShownColumns", "shown_schema"]

ROWS = 1000
"""Rows in one Arrow batch at most."""
# Columns that need no headers.
_CHEAP = frozenset({"body", "delivery_count", TEXT, ERROR})
_DECODED = (pa.field(TEXT, pa.string()), pa.field(ERROR, pa.string()))
DEATH: tuple[pa.Field, ...] = (
    pa.field("original_destination", pa.string()),
    pa.field("original_id", pa.string()),
    pa.field("cause", pa.string()),
    pa.field("redelivery_count", pa.int64()),
    pa.field("first_failure", pa.timestamp("us", tz="UTC")),
    pa.field("dead_lettered_at", pa.timestamp("us", tz="UTC")),
    pa.field("redrives", pa.int64()),
)
_DEATHS: dict[str, Callable[[DeadLetter], Any]] = {
    "original_destination": lambda letter: letter.original_destination,
    "original_id": lambda letter: letter.original_id,
    "cause": lambda letter: letter.cause,
    "redelivery_count": lambda letter: letter.redelivery_count,
    "first_failure": lambda letter: letter.first_failure,
    "dead_lettered_at": lambda letter: letter.died_at,
    "redrives": lambda letter: letter.redrives,
}


def shown_schema(options: ReadOptions) -> pa.Schema:
    """Return all columns that a read with these options has, in order."""
    decode = [field for field, there in zip(_DECODED, (options.text, options.error), strict=True) if there]
    return pa.schema([*COLUMNS, *decode, *(DEATH if options.dead_letters else ())])


class ShownColumns:
    """Columns that a query asked for. Other columns are not computed."""

    def __init__(self, options: ReadOptions, names: Sequence[str]) -> None:
        """Args: options: those of the read; names: the columns, in order."""
        self._options = options
        there = shown_schema(options)
        self._schema = pa.schema([there.field(name) for name in names])

    def of(
        self,
        deliveries: Sequence[Delivery],
        queue: str,
        name: str,
        first: int = 0,
        letters: Sequence[DeadLetter] | None = None,
    ) -> pa.RecordBatch:
        """Return messages as rows.

        Args:
            deliveries: The messages.
            queue: Qualified name of their queue.
            name: Name of a message without an id; its number is appended.
            first: Number of the first message.
            letters: The messages as dead letters, if the caller has them.

        Raises:
            RedeliveryError: A body cannot be decoded, and onDecodeError is `fail`.
        """
        names = set(self._schema.names)
        made = self._decoded(deliveries)
        if not names <= _CHEAP:
            for delivery in deliveries:
                delivery.read_ahead()
        if not names.isdisjoint(_DEATHS):
            letters = letters or [read_letter(delivery, queue) for delivery in deliveries]
            made |= {column: [value(letter) for letter in letters] for column, value in _DEATHS.items()}
        made["delivery_count"] = [1] * len(deliveries)
        if "message_id" in names:
            made["message_id"] = [
                f"{name}/{number}" if delivery.identity is None else delivery.identity
                for number, delivery in enumerate(deliveries, first)
            ]
        arrays = [
            pa.array(made[field.name], field.type)
            if field.name in made
            else message_column(field.name, deliveries)
            for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _decoded(self, deliveries: Sequence[Delivery]) -> dict[str, list[Any]]:
        """Return the columns of decoded bodies. With `onDecodeError=fail` each body is checked, also if it is not
        shown.
        """
        options = self._options
        if not options.text:
            return {}
        found = [decoded(delivery.body, options.decode) for delivery in deliveries]
        for delivery, (_, error) in zip(deliveries, found, strict=True):
            if error is not None and not options.error:
                raise RedeliveryError(
                    f"message {delivery.identity} {error}; use onDecodeError=permissive to show it, with a column "
                    "_error"
                )
        return {TEXT: [text for text, _ in found], ERROR: [error for _, error in found]}

"""From deliveries to rows of the log, and from a row back to a delivery that the engine takes."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from redelivery.core.delivery import BodyKind, Delivery
from redelivery_spark.schema import SEGMENT

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence
    from datetime import datetime

__all__ = [
    "CONSUMER",
    "LOG_EPOCH",
    "LoggedDelivery",
    "Row",
    "batch_of",
    "identities_of",
    "identity_of",
    "key_of",
    "rows_of",
    "table_of",
]

Row = dict[str, Any]
LOG_EPOCH = 1
"""The epoch of what is in the log: no connection is ever lost to it."""
CONSUMER = 0
_IDENTITY = ("destination", "message_id", "timestamp")


def batch_of(
    deliveries: Sequence[Delivery], name: str, texts: Sequence[str | None], errors: Sequence[str | None]
) -> pa.RecordBatch:
    """Return the rows of messages that have arrived; those without an id are called `name/0`, `name/1`, ….

    A redelivery's `delivery_count` is what has been charged, plus one.
    """
    headers = [delivery.headers for delivery in deliveries]
    columns: list[Sequence[Any]] = [
        [delivery.identity or f"{name}/{number}" for number, delivery in enumerate(deliveries)],
        [delivery.destination for delivery in deliveries],
        [delivery.body for delivery in deliveries],
        [_texts(each) for each in headers],
        [delivery.content_type for delivery in deliveries],
        [delivery.correlation_id for delivery in deliveries],
        [delivery.reply_to for delivery in deliveries],
        [delivery.timestamp for delivery in deliveries],
        [_redelivered(delivery) for delivery in deliveries],
        [1 if delivery.record is None else delivery.record.count + 1 for delivery in deliveries],
        texts,
        errors,
        [delivery.body_kind for delivery in deliveries],
        [delivery.persistent for delivery in deliveries],
        [delivery.priority for delivery in deliveries],
        [delivery.group for delivery in deliveries],
        [delivery.message_type for delivery in deliveries],
        [delivery.expires_at for delivery in deliveries],
        [_typed(each) for each in headers],
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SEGMENT, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SEGMENT)


def rows_of(table: pa.Table, numbers: Iterable[int]) -> list[Row]:
    """Return some rows of a segment."""
    return table.take(pa.array(list(numbers), pa.int64())).to_pylist()


def identity_of(row: Row) -> Hashable:
    """Return what a message is known by over deliveries: where it was sent, its id, and when."""
    return row["destination"], row["message_id"], row["timestamp"]


def key_of(delivery: Delivery) -> Hashable:
    """Return the same of a message that has arrived, as its row would have it."""
    return delivery.destination, delivery.identity, delivery.timestamp


def identities_of(table: pa.Table) -> list[Hashable]:
    """Return what all rows of a table are known by, in order."""
    return list(zip(*(table.column(name).to_pylist() for name in _IDENTITY), strict=True))


def _redelivered(delivery: Delivery) -> bool:
    return delivery.redelivered or (delivery.record is not None and delivery.record.count > 0)


def _texts(headers: Mapping[str, Any]) -> list[tuple[str, str | None]]:
    return [(name, value if isinstance(value, str) else _text(value)) for name, value in headers.items()]


def _text(value: object) -> str | None:
    if value is None or isinstance(value, bool):
        return None if value is None else str(value).lower()
    return value.hex() if isinstance(value, bytes) else str(value)


def _typed(headers: Mapping[str, Any]) -> str | None:
    """Keep the types of properties that are no text: a copy must have them, and a column of texts has not."""
    found: dict[str, Any] = {}
    for name, value in headers.items():
        if isinstance(value, bytes):
            found[name] = {"bytes": base64.b64encode(value).decode()}
        elif value is None or isinstance(value, bool):
            found[name] = value
        elif isinstance(value, int):
            found[name] = int(value)
        elif isinstance(value, float):
            found[name] = float(value)
    return json.dumps(found) if found else None


def _untyped(text: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {} if text is None else json.loads(text)
    return {
        name: base64.b64decode(cast("dict[str, str]", value)["bytes"]) if isinstance(value, dict) else value
        for name, value in found.items()
    }


class LoggedDelivery(Delivery):
    """A row of the log, as the engine takes it: its original is the log's to settle."""

    __slots__ = ("row", "ticket")

    def __init__(self, row: Row, ticket: int) -> None:
        """`ticket`: its number for as long as the log holds it, in this process."""
        super().__init__(CONSUMER, LOG_EPOCH, row.pop("body"))
        self.row = row
        self.ticket = ticket

    def whole(self) -> Row:
        """Return the row with the body, and with the count of its next delivery."""
        count = 0 if self.record is None else self.record.count
        again = count > 0 or self.row["redelivered"]
        return self.row | {"body": self.body, "delivery_count": count + 1, "redelivered": again}

    @property
    def key(self) -> Hashable:
        return identity_of(self.row)

    @property
    def identity(self) -> str:
        return str(self.row["message_id"])

    @property
    def destination(self) -> str:
        return str(self.row["destination"])

    @property
    def redelivered(self) -> bool:
        return bool(self.row["redelivered"])

    @property
    def expires_at(self) -> float | None:
        return cast("float | None", self.row["_expires"])

    @property
    def group(self) -> str | None:
        return cast("str | None", self.row["_group"])

    @property
    def persistent(self) -> bool:
        return bool(self.row["_persistent"])

    @property
    def body_kind(self) -> BodyKind:
        return cast("BodyKind", self.row["_kind"])

    @property
    def message_id(self) -> str:
        return str(self.row["message_id"])

    @property
    def headers(self) -> Mapping[str, Any]:
        return dict(self.row["properties"]) | _untyped(self.row["_typed"])

    @property
    def content_type(self) -> str | None:
        return cast("str | None", self.row["content_type"])

    @property
    def correlation_id(self) -> str | None:
        return cast("str | None", self.row["correlation_id"])

    @property
    def reply_to(self) -> str | None:
        return cast("str | None", self.row["reply_to"])

    @property
    def message_type(self) -> str | None:
        return cast("str | None", self.row["_type"])

    @property
    def priority(self) -> int:
        return int(self.row["_priority"])

    @property
    def timestamp(self) -> datetime | None:
        return cast("datetime | None", self.row["timestamp"])


def table_of(rows: Sequence[LoggedDelivery]) -> pa.Table:
    """Return rows as a part of a batch, each with the count of its next delivery."""
    return pa.Table.from_pylist([row.whole() for row in rows], schema=SEGMENT)

"""From deliveries to rows of the log, and from a row back to a delivery that the engine takes."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from redelivery.core.delivery import BodyKind, Delivery
from redelivery_spark.schema import SEGMENT
from redelivery_spark.stream.expected_body import decoded

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from redelivery_spark.options.stream_options import SourceOptions
    from redelivery_spark.wal.wal_state import Place

__all__ = [
    "CONSUMER",
    "LOG_EPOCH",
    "LoggedDelivery",
    "Row",
    "batch_of",
    "digest_of",
    "key_of",
    "keys_of",
    "places_of",
    "rows_of",
    "table_of",
    "waiting_rows",
]

Row = dict[str, Any]
LOG_EPOCH = 1
"""The epoch of what is in the log: no connection is ever lost to it."""
CONSUMER = 0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def batch_of(
    deliveries: Sequence[Delivery],
    names: tuple[list[str], list[str | None] | None],
    kept: Sequence[bool],
    texts: Sequence[str | None],
    errors: Sequence[str | None],
) -> pa.RecordBatch:
    """Return the rows of messages that have arrived; `names` is what `names.named` has made of their ids.

    It is the first delivery that counts: the log counts, and what the broker has counted is information.
    """
    headers = [delivery.headers for delivery in deliveries]
    nothing: list[None] = [None] * len(deliveries)
    columns: list[Sequence[Any]] = [
        names[0],
        [delivery.destination for delivery in deliveries],
        [delivery.body for delivery in deliveries],
        [_texts(each) for each in headers],
        [delivery.content_type for delivery in deliveries],
        [delivery.correlation_id for delivery in deliveries],
        [delivery.reply_to for delivery in deliveries],
        [delivery.timestamp for delivery in deliveries],
        [_redelivered(delivery) for delivery in deliveries],
        [1] * len(deliveries),
        texts,
        errors,
        [delivery.body_kind for delivery in deliveries],
        [delivery.persistent for delivery in deliveries],
        [delivery.priority for delivery in deliveries],
        [delivery.group for delivery in deliveries],
        [delivery.message_type for delivery in deliveries],
        [delivery.expires_at for delivery in deliveries],
        [_typed(each) for each in headers],
        names[1] or nothing,
        kept,
        nothing,
        nothing,
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SEGMENT, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SEGMENT)


def rows_of(table: pa.Table, numbers: Iterable[int]) -> list[Row]:
    """Return some rows of a segment."""
    return table.take(pa.array(list(numbers), pa.int64())).to_pylist()


def places_of(table: pa.Table) -> dict[Place, int]:
    """Return which rows of a batch have been in batches before it, and where each came into the log."""
    column = table.column("_number")
    if column.null_count == len(column):
        return {}
    numbers, rows = column.to_pylist(), table.column("_at").to_pylist()
    return {(n, at): i for i, (n, at) in enumerate(zip(numbers, rows, strict=True)) if n is not None}


def waiting_rows(table: pa.Table, number: int, rows: Sequence[int]) -> pa.Table:
    """Return those rows of batch `number` that wait from now on, each with its place."""
    found = table.take(pa.array(rows, pa.int64()))
    for name, values in (("_number", [number] * len(rows)), ("_at", rows)):
        at = found.schema.get_field_index(name)
        found = found.set_column(
            at, found.schema.field(name), pa.array(values, found.schema.field(name).type)
        )
    return found


def key_of(delivery: Delivery) -> Hashable:
    """Return what the broker's copies of a message have in common: where it was sent, its id, and when."""
    sent = delivery.timestamp
    return delivery.destination, delivery.identity, None if sent is None else (sent - _EPOCH) // _MICROSECOND


def keys_of(table: pa.Table) -> list[Hashable]:
    """Return the same of all rows of a table, in order."""
    identities = pc.coalesce(table.column("_identity"), table.column("message_id")).to_pylist()
    sent = table.column("timestamp").cast(pa.int64()).to_pylist()
    return list(zip(table.column("destination").to_pylist(), identities, sent, strict=True))


def digest_of(body: bytes) -> bytes:
    """Return what tells bodies apart: the ids of messages need not differ."""
    return blake2b(body, digest_size=16).digest()


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
        if isinstance(value, str):
            continue
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
    """A row of the log, as the engine takes it: its original is the log's to settle.

    `original`: whether the broker still has the message. `failed`: as in a `Fact`. `delay`: for how long it was last to
    wait.
    """

    __slots__ = ("_original", "delay", "failed", "place", "row")

    def __init__(self, row: Row, place: Place) -> None:
        super().__init__(CONSUMER, LOG_EPOCH, row.pop("body"))
        self.row = row
        self.place = place
        self._original = bool(row["_kept"])
        self.failed: int | None = None
        self.delay = 0.0

    def whole(self) -> Row:
        """Return the row with the body, and with the count of its next delivery."""
        count = 0 if self.record is None else self.record.count
        again = count > 0 or self.row["redelivered"]
        number, at = self.place
        own = {"body": self.body, "delivery_count": count + 1, "redelivered": again}
        return self.row | own | {"_number": number, "_at": at, "_kept": self._original}

    def again(self) -> LoggedDelivery:
        """Return another delivery of the same row, for an engine that has settled this one."""
        other = LoggedDelivery(self.row | {"body": self.body}, self.place)
        other._original, other.record = self._original, self.record
        other.failed, other.delay = self.failed, self.delay
        return other

    @property
    def original(self) -> bool:
        return self._original

    def without_original(self) -> None:
        """Learn that the broker does not have the message any more."""
        self._original = False

    @property
    def key(self) -> Hashable:
        return self.place

    @property
    def strong(self) -> bool:
        return True

    @property
    def name(self) -> str:
        """What verdicts call it."""
        return str(self.row["message_id"])

    @property
    def identity(self) -> str:
        return str(self.row["_identity"] or self.row["message_id"])

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
        return self.identity

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


def table_of(rows: Sequence[LoggedDelivery], options: SourceOptions) -> pa.Table:
    """Return rows as a part of a batch, each with the count of its next delivery.

    They are decoded as the source is told now: it may have been told otherwise when they came.
    """
    whole = [row.whole() for row in rows]
    for row in whole if options.text else ():
        if row["text"] is None and row["_error"] is None:
            row["text"], error = decoded(row["body"], options)
            row["_error"] = error if options.error else None
    return pa.Table.from_pylist(whole, schema=SEGMENT)

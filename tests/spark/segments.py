"""Segments of a log for tests of reading them, and the columns of a message made without Arrow."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import cloudpickle

from redelivery_spark.executors.segment_reader import SegmentPart, SegmentSlice, rows_of
from redelivery_spark.schema import stream_schema
from redelivery_spark.wal.checked_file import publish_checked
from redelivery_spark.wal.segment_files import (
    SegmentFacts,
    redelivered_table,
    segment_name,
    stored_table,
    written,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from redelivery.core.delivery import Delivery
    from redelivery_spark.wal.wal_store import WalStore

__all__ = [
    "ALL",
    "ARTEMIS",
    "AT",
    "CLASSIC",
    "COUNTED",
    "PLAIN",
    "Stored",
    "again",
    "head",
    "plain",
    "publish",
    "read",
]

Stored = tuple[bytes, bytes | None]

AT = 1790000000.25
ARTEMIS = {"scheme": "stomp", "broker": "artemis", "version": "1.2", "destination": "queue://orders"}
CLASSIC = {**ARTEMIS, "broker": "activemq", "version": "1.1", "destination": "queue://old"}
ALL = tuple(stream_schema(text=True, error=True).names)
PLAIN = tuple(stream_schema(text=False, error=False).names)
COUNTED = 3


def head(**headers: str) -> bytes:
    """Return the header block of a MESSAGE frame."""
    lines = {"message-id": "17", "destination": "orders", "timestamp": "1700000000123"}
    lines |= {name.replace("_", "-"): value for name, value in headers.items()}
    return "".join(f"\n{name}:{value}" for name, value in lines.items()).encode() + b"\n"


def publish(
    store: WalStore, number: int, rows: Sequence[Stored], wire: Mapping[str, str] = ARTEMIS, **facts: Any
) -> SegmentPart:
    """Publish a segment of lane 1; return all of it."""
    heads, bodies = [row[0] for row in rows], [row[1] for row in rows]
    table = stored_table(heads, bodies, SegmentFacts(AT, "ab" * 16, (wire,), **facts))
    assert publish_checked(store, segment_name(1, number), *written(table))
    return SegmentPart(1, number, 0, len(rows))


def again(
    store: WalStore, number: int, rows: Sequence[Stored], wires: Sequence[int], origins: Sequence[int]
) -> SegmentPart:
    """Publish a segment of lane 0, of rows that were delivered before."""
    heads, bodies = [row[0] for row in rows], [row[1] for row in rows]
    facts = SegmentFacts(AT, "ab" * 16, (ARTEMIS, CLASSIC))
    table = redelivered_table(
        heads, bodies, origins, [COUNTED] * len(rows), wires, [AT - 60.0] * len(rows), facts
    )
    assert publish_checked(store, segment_name(0, number), *written(table))
    return SegmentPart(0, number, 0, len(rows))


def read(
    store: WalStore, *parts: SegmentPart, columns: Sequence[str] = PLAIN, **how: str
) -> list[dict[str, Any]]:
    """Read parts as an executor does."""
    shipped = cloudpickle.loads(cloudpickle.dumps(SegmentSlice(store.url, parts, tuple(columns), **how)))  # type: ignore[no-untyped-call]
    batches = list(rows_of(shipped))
    wanted = stream_schema(text=True, error=True)
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema.equals(pa.schema([wanted.field(name) for name in columns]))
    return [row for batch in batches for row in batch.to_pylist()]


def plain(delivery: Delivery, at: int, lane: int, origin: int) -> dict[str, Any]:
    """Return the columns of a message, made without Arrow."""
    found: Iterator[tuple[str, Any]] = iter(delivery.headers.items())
    return {
        "message_id": delivery.identity or f"abababab/{origin}",
        "destination": delivery.destination,
        "body": delivery.body,
        "properties": [(name, None if value is None else str(value)) for name, value in found],
        "content_type": delivery.content_type,
        "correlation_id": delivery.correlation_id,
        "reply_to": delivery.reply_to,
        "timestamp": delivery.timestamp,
        "delivered_at": datetime.fromtimestamp(AT, UTC),
        "redelivered": delivery.redelivered or lane == 0,
        "delivery_count": 1 if lane else COUNTED,
        "text": None,
        "_error": None,
        "_place": at,
    }

"""Segments as rows under Spark, through a source of only two of them: columns, and bodies that are refused."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from integration.need import need_spark

need_spark()

from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from pyspark.sql.pandas.types import from_arrow_schema

from redelivery_spark import foreach_batch, process
from redelivery_spark.api.wal_location import marked
from redelivery_spark.executors.segment_reader import DECODE_MARK, SegmentPart, SegmentSlice, rows_of
from redelivery_spark.schema import stream_schema
from redelivery_spark.wal.checked_file import publish_checked
from redelivery_spark.wal.places import place, tag_of
from redelivery_spark.wal.records import Records
from redelivery_spark.wal.segment_files import (
    SegmentFacts,
    redelivered_table,
    segment_name,
    stored_table,
    written,
)
from redelivery_spark.wal.store import store_at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.types import StructType

pytestmark = [
    pytest.mark.full("Spark: segments"),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]
COLUMNS = stream_schema(text=True, error=False)
WIRE = {"scheme": "stomp", "broker": "artemis", "version": "1.2", "destination": "queue://orders"}
AT = 1790000000.25
ROWS = 50


class SegmentsReader(DataSourceStreamReader):
    """One batch: a segment of lane 1 in two parts, and one of lane 0."""

    def __init__(self, wal: str) -> None:
        self._wal = wal

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """As Spark's."""
        return {"n": 0}

    def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:  # noqa: N802
        """As Spark's."""
        return {"n": 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Any]:
        """As Spark's."""
        if start == end:
            return []
        parts = [
            (SegmentPart(1, 1, 0, 20),),
            (SegmentPart(1, 1, 20, ROWS), SegmentPart(0, 1, 0, 1)),
        ]
        return [SegmentSlice(self._wal, each, tuple(COLUMNS.names), decode="json") for each in parts]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """As Spark's."""
        return rows_of(partition)


class SegmentsSource(DataSource):
    """`format("segments")`."""

    @classmethod
    def name(cls) -> str:
        """As Spark's."""
        return "segments"

    def schema(self) -> StructType:
        """As the source's."""
        return marked(from_arrow_schema(COLUMNS), self.options["wal"])

    def streamReader(self, schema: StructType) -> SegmentsReader:  # noqa: N802
        """As Spark's."""
        return SegmentsReader(self.options["wal"])


def fill(wal: str) -> None:
    """Write the segments: body 7 is not JSON."""
    store = store_at(wal)
    store.prepare("s0", "s1", "verdicts", "failures")
    heads = [
        b"\nmessage-id:%d\ndestination:orders\ntimestamp:1700000000123\nkind:k%d\n" % (n, n % 3)
        for n in range(ROWS)
    ]
    bodies = [b"{" if n == 7 else b"[%d]" % n for n in range(ROWS)]
    facts = SegmentFacts(AT, "ab" * 16, (WIRE,))
    publish_checked(store, segment_name(1, 1), *written(stored_table(heads, bodies, facts)))
    origin = place(1, tag_of(wal), 1, 99)
    again = redelivered_table([heads[0]], [b"[99]"], [origin], [2], [0], [AT], facts)
    publish_checked(store, segment_name(0, 1), *written(again))


def check(row: Row) -> object:
    """Refuse the message of body [9]."""
    if row["text"] == "[9]":
        raise ValueError("nine")
    return row


def test_segments_are_rows(spark_abroad: SparkSession, tmp_path: Path) -> None:
    """All columns arrive, a body that cannot be decoded is refused by `read`, and `process` has places and counts."""
    wal, seen = str(tmp_path / "wal"), list[Any]()
    fill(wal)

    def write(df: DataFrame, _: int) -> None:
        seen.extend(process(df, check).collect())

    spark_abroad.dataSource.register(SegmentsSource)
    stream = spark_abroad.readStream.format("segments").option("wal", wal).load()
    writer = stream.writeStream.foreachBatch(foreach_batch(write))
    query = writer.option("checkpointLocation", str(tmp_path / "c")).start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    assert sorted(row["text"] for row in seen) == sorted(
        f"[{n}]" for n in [*range(ROWS), 99] if n not in (7, 9)
    )
    row = next(row for row in seen if row["text"] == "[8]").asDict()
    times = {name: row.pop(name).astimezone(UTC) for name in ("timestamp", "delivered_at")}
    assert times == {
        "timestamp": datetime(2023, 11, 14, 22, 13, 20, 123000, UTC),
        "delivered_at": datetime.fromtimestamp(AT, UTC),
    }
    assert row == {
        "message_id": "8", "destination": "queue://orders", "body": b"[8]", "properties": {"kind": "k2"},
        "content_type": None, "correlation_id": None, "reply_to": None, "redelivered": False, "delivery_count": 1,
        "text": "[8]", "_place": place(1, tag_of(wal), 1, 8),
    }  # fmt: skip
    again = next(row for row in seen if row["text"] == "[99]")
    assert (again["delivery_count"], again["redelivered"]) == (2, True)
    names, refused = Records(store_at(wal)).settled_by({}, {0: 1, 1: 1})
    assert {at % 8192: refusal.kind for at, refusal in refused.items()} == {7: "poison", 9: "fail"}
    assert [name for name in names if f"-{DECODE_MARK}-" in name] != []

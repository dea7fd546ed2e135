"""DataFrames as `process` and `foreach_batch` see them, without a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from redelivery_spark.api.wal_location import marked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pytest

__all__ = ["Frame", "in_batch", "source"]


class Frame:
    """Rows of one partition, and what is done to them when they are asked for."""

    def __init__(self, schema: StructType, rows: Callable[[], Iterator[pa.RecordBatch]]) -> None:
        self.schema = schema
        self.columns = schema.names
        self._rows = rows

    def mapInArrow(self, task: Callable[..., Iterator[pa.RecordBatch]], schema: StructType) -> Frame:
        """As Spark's."""
        return Frame(schema, lambda: task(self._rows()))

    def filter(self, keep: Callable[[dict[str, Any]], bool]) -> Frame:
        """Return the rows that `keep` takes."""

        def kept() -> Iterator[pa.RecordBatch]:
            for batch in self._rows():
                yield batch.filter(pa.array([keep(row) for row in batch.to_pylist()], pa.bool_()))

        return Frame(self.schema, kept)

    def collect(self) -> list[dict[str, Any]]:
        """Have it done."""
        return [row for batch in self._rows() for row in batch.to_pylist()]


def source(wal: Path, *bodies: str) -> Frame:
    """Return a batch of a source, of which each message's id is its body."""
    fields = [StructField("message_id", StringType()), StructField("delivery_count", IntegerType())]
    columns = [pa.array(bodies), pa.array([1] * len(bodies), pa.int32())]
    batch = pa.record_batch(columns, names=["message_id", "delivery_count"])
    return Frame(marked(StructType(fields), str(wal)), lambda: iter([batch]))


def in_batch(monkeypatch: pytest.MonkeyPatch, number: int, partition: int = 0) -> None:
    """Be a task of a streaming query."""

    class Context:
        @staticmethod
        def get() -> type[Context]:
            return Context

        @staticmethod
        def getLocalProperty(name: str) -> str:
            assert name == "streaming.sql.batchId"
            return str(number)

        @staticmethod
        def partitionId() -> int:
            return partition

    monkeypatch.setattr("redelivery_spark.api.process.TaskContext", Context)

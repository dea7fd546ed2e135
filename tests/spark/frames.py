"""DataFrames as `process` and `foreach_batch` see them, without a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from redelivery_spark.api.wal_location import marked
from redelivery_spark.executors.crumbs import TaskIdentity
from redelivery_spark.schema import stream_schema
from redelivery_spark.wal.places import place, tag_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import pytest
    from pyspark.sql.types import StructType

__all__ = ["Frame", "cut", "in_batch", "places", "source", "united"]

NAMES = ("message_id", "properties", "timestamp", "delivery_count", "_place")


class Frame:
    """Partitions of rows, and the functions that run over them when they are collected."""

    partition: ClassVar[int] = 0

    def __init__(self, schema: StructType, *parts: Callable[[], Iterator[pa.RecordBatch]]) -> None:
        self.schema = schema
        self.columns = schema.names
        self.parts = parts

    def mapInArrow(self, task: Callable[..., Iterator[pa.RecordBatch]], schema: StructType) -> Frame:
        """As Spark's."""
        return Frame(schema, *((lambda part=part: task(part())) for part in self.parts))

    def filter(self, keep: Callable[[dict[str, Any]], bool]) -> Frame:
        """Return the rows for which `keep` is true."""

        def kept(part: Callable[[], Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
            for batch in part():
                yield batch.filter(pa.array([keep(row) for row in batch.to_pylist()], pa.bool_()))

        return Frame(self.schema, *((lambda part=part: kept(part)) for part in self.parts))

    def collect(self) -> list[dict[str, Any]]:
        """Run all tasks, one after the other."""
        found: list[dict[str, Any]] = []
        for Frame.partition, part in enumerate(self.parts):
            found += [row for batch in part() for row in batch.to_pylist()]
        return found


def cut(frame: Frame, size: int) -> Frame:
    """Return the same rows in Arrow batches of another size."""

    def parted(part: Callable[[], Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
        for batch in part():
            for begin in range(0, batch.num_rows, size):
                yield batch.slice(begin, size)

    return Frame(frame.schema, *((lambda part=part: parted(part)) for part in frame.parts))


def united(*frames: Frame, partitions: bool = True) -> Frame:
    """Return the rows of several frames: in partitions of their own, or all in one Arrow batch."""
    if partitions:
        return Frame(frames[0].schema, *(part for frame in frames for part in frame.parts))

    def all_rows() -> Iterator[pa.RecordBatch]:
        batches = [batch for frame in frames for part in frame.parts for batch in part()]
        yield pa.Table.from_batches(batches).combine_chunks().to_batches()[0]

    return Frame(frames[0].schema, all_rows)


def places(wal: Path, *bodies: str) -> list[int]:
    """Return the places of rows, by their ids: a is row 0 of segment 1 of lane 1."""
    return [place(1, tag_of(str(wal)), 1, ord(body) - ord("a")) for body in bodies]


def source(wal: Path, *bodies: str, log: Path | None = None) -> Frame:
    """Return a batch of a source, in which each message's id is its body; `log`: the log to which the rows really
    belong.
    """
    fields = pa.schema([stream_schema(text=False, error=False).field(name) for name in NAMES])
    rows: Sequence[dict[str, Any]] = [
        {
            "message_id": body,
            "properties": [("kind", body)],
            "timestamp": 1,
            "delivery_count": 1,
            "_place": at,
        }
        for body, at in zip(bodies, places(log or wal, *bodies), strict=True)
    ]
    batch = pa.RecordBatch.from_pylist(rows, fields)
    return Frame(marked(from_arrow_schema(fields), str(wal)), lambda: iter([batch]))


def in_batch(
    monkeypatch: pytest.MonkeyPatch,
    number: int | None,
    run: str = "run",
    stage: int = 0,
    *,
    retried: bool = False,
) -> None:
    """Act as a task of a streaming query, or of none."""

    def task() -> TaskIdentity | None:
        return None if number is None else TaskIdentity(number, run, stage, Frame.partition, retried)

    monkeypatch.setattr("redelivery_spark.api.process.this_task", task)
    monkeypatch.setattr("redelivery_spark.executors.segment_reader.this_task", task)

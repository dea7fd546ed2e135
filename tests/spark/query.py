"""A query as Spark drives a source, without Spark: offsets, a commit log, replays, and a death at any call."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from redelivery import Classifier
from redelivery.testing import ManualClock, MemoryBroker
from redelivery_spark.executors import segment_reader
from redelivery_spark.executors.crumbs import TaskIdentity
from redelivery_spark.executors.segment_reader import SegmentSlice, rows_of
from redelivery_spark.options.source_options import read_options
from redelivery_spark.schema import stream_schema
from redelivery_spark.stream.lanes import offset_of, vector_of
from redelivery_spark.stream.readers import ReadingThread
from redelivery_spark.stream.slicing import sliced
from redelivery_spark.stream.stream_reader import opened
from redelivery_spark.wal.records import Records, Refusal, Verdict, verdict_name
from redelivery_spark.wal.store import store_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Self

    from redelivery_spark.stream.coordinator import Coordinator
    from redelivery_spark.stream.lane_reader import LaneReader
    from redelivery_spark.stream.source_connection import SourceConnection
    from redelivery_spark.wal.lane import Vector

Row = dict[str, Any]


class Killed(BaseException):
    """The query's process dies here."""


class KillsQuery(BaseException):
    """An exception of a handler that `process` does not catch."""


class InlineReader(ReadingThread):
    """A reader that runs on the coordinator's thread whenever that waits: a test is then deterministic."""

    @property
    def reader(self) -> LaneReader:
        """The lane reader."""
        return self._reader

    @property
    def source(self) -> SourceConnection:
        """The connection of the lane reader."""
        return self._source

    def start(self) -> None:
        """Do nothing: there is no thread."""

    def wait(self, seen: int, timeout: float) -> None:
        """Read for a while."""
        if self._reader.step(timeout):
            self._tell()


def readers_of(source: Coordinator) -> InlineReader:
    """Return the reader of a query."""
    readers = source._readers
    assert isinstance(readers, InlineReader)
    return readers


def fails_bad(row: Row) -> None:
    """Refuse `bad` always, and `flaky` at its first two deliveries; die over `killer`."""
    body = row["body"].decode()
    if body.startswith("bad") or (body.startswith("flaky") and row["delivery_count"] < 3):
        raise ValueError(body)
    if body.startswith("killer"):
        raise KillsQuery(body)


def dead_bodies(broker: MemoryBroker) -> list[bytes]:
    """Return the bodies of the dead letters, sorted."""
    return sorted(letter.body for letter in broker.dead_letters())


class Query:
    """One query over one log and one checkpoint; `output` has the batches of its sink."""

    def __init__(self, broker: MemoryBroker, wal_dir: Path | str, **options: object) -> None:
        uri = options.pop("uri", "")
        given = {
            "url": f"{broker.uri}?{uri}",
            "destination": "orders",
            "walDir": str(wal_dir),
            "partitions": "2",
        }
        self.options = read_options(given | {name: str(value) for name, value in options.items()})
        self.store = store_at(str(wal_dir))
        self.records = Records(self.store)
        self.classifier = Classifier()
        self.committed: Vector = {}  # Spark's commit log
        self.planned: Vector = {}  # Spark's offset log
        self.batch = 0  # Spark's number of the batch
        self.output: dict[int, list[Row]] = {}
        self.source: Coordinator | None = None
        self.starts = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.die()

    def die(self) -> None:
        """Kill the process: its lock and its connection end, too, and it writes nothing more."""
        if self.source is not None:
            self.source._at_rest = False
        self.end()

    def end(self) -> None:
        """End the process as Spark does when a query ends, or has failed."""
        source, self.source = self.source, None
        if source is not None:
            source.close()

    def start(self) -> Coordinator:
        """Start, or start again: `step` first replays a batch that was planned and not committed."""
        if self.source is None:
            self.starts += 1
            self.source = opened(self.options, InlineReader)
        return self.source

    def read_ahead(self) -> None:
        """Make the reader publish all messages that are there, as it does while Spark is busy."""
        source = self.start()
        source.begin(self.planned)
        readers = readers_of(source)
        while readers.pending() or readers.reader.step(0.1):
            readers.reader.step(1.0)

    def plan(self) -> bool:
        """Ask for the next batch, unless one must be replayed; return True if there is one."""
        source = self.start()
        if self.planned == self.committed:
            end = source.latest(self.committed, self.options.most_rows)
            self.planned = vector_of(offset_of(end, source.log))
        return self.planned != self.committed

    def read(self) -> list[list[Row]]:
        """Return the rows of the current batch, task by task."""
        segments = self.start().segments(self.committed, self.planned)
        columns = tuple(stream_schema(text=self.options.text, error=self.options.error).names)
        with task(self.batch):
            return [
                [
                    row
                    for part in rows_of(
                        SegmentSlice(
                            self.options.wal_dir,
                            parts,
                            columns,
                            self.options.decode,
                            self.options.on_decode_error,
                        )
                    )
                    for row in part.to_pylist()
                ]
                for parts in sliced(segments, self.options.partitions)
            ]

    def step(
        self, handler: Callable[[Row], object] = lambda _: None, *, evidence: bool = False
    ) -> list[Row] | None:
        """Run one batch, and return its rows; None: there was none. A killer leaves the batch uncommitted."""
        if not self.plan():
            return None
        tasks = self.read()
        passed: list[Row] = []
        for rows in tasks:
            try:
                passed += self._processed(rows, handler)
            except KillsQuery as error:
                if evidence:
                    self.records.fail(str(error))
                self.die()
                raise
        self.output[self.batch] = passed
        self.commit()
        return [row for rows in tasks for row in rows]

    def commit(self) -> None:
        """Commit the batch, as Spark does when it is done."""
        self.committed = self.planned
        self.batch += 1

    def _processed(self, rows: list[Row], handler: Callable[[Row], object]) -> list[Row]:
        """Return the rows that the handler does not refuse, and write the verdict on a task's rows."""
        passed: list[Row] = []
        refused: dict[int, Refusal] = {}
        for row in rows:
            try:
                handler(row)
            except Exception as error:  # noqa: BLE001 - as `process` does
                kind, cause, delay = self.classifier.verdict(error)
                text = repr(error) if kind == "fail" else cause.text
                refused[row["_place"]] = Refusal(row["delivery_count"], kind, text, delay, cause.place)
            else:
                passed.append(row)
        if rows:
            places = [row["_place"] for row in rows]
            self.records.judge(
                verdict_name(self.batch, "handler", places), Verdict(places, refused), durable=True
            )
        return passed

    def drain(
        self, handler: Callable[[Row], object] = lambda _: None, *, evidence: bool = False, most: int = 5000
    ) -> None:
        """Run batches, and start again after each failure, until no message arrives and no row waits."""
        idle = 0
        report: dict[str, Any] = {}
        for _ in range(most):
            try:
                idle = 0 if self.step(handler, evidence=evidence) is not None else idle + 1
            except KillsQuery:
                continue
            report = self.start().report() or {}
            if idle > 2 and not report.get("waiting"):
                return
        raise AssertionError(f"not drained after {most} batches: {report}")

    def bodies(self) -> list[str]:
        """Return the bodies in the sink."""
        return [row["body"].decode() for rows in self.output.values() for row in rows]


@contextmanager
def task(batch: int) -> Iterator[None]:
    """Act as a task of one of Spark's batches."""
    with patch.object(segment_reader, "this_task", lambda: TaskIdentity(batch)):
        yield


def with_options(query: Query, **changed: object) -> None:
    """Change options for the next start."""
    query.options = replace(query.options, **changed)  # type: ignore[arg-type]


def clock_and_broker() -> tuple[ManualClock, MemoryBroker]:
    """Return a broker in virtual time."""
    clock = ManualClock(auto_advance=True)
    return clock, MemoryBroker(clock=clock)

"""A query as Spark drives a source, without Spark: offsets, a commit log, replays, and a death at any call."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from redelivery.testing import ManualClock, MemoryBroker
from redelivery_spark.executors.task_consumer import rows_of_share
from redelivery_spark.options.stream_options import read_options
from redelivery_spark.stream.startup import opened
from redelivery_spark.wal.arrow_files import read_table
from redelivery_spark.wal.records import Records, Refusal
from redelivery_spark.wal.store import store_at
from redelivery_spark.wal.task_parts import TaskParts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Self

    import pyarrow as pa

    from redelivery_spark.executors.share import Share
    from redelivery_spark.stream.coordinator import Coordinator

Row = dict[str, Any]


class Killed(BaseException):
    """The query's process dies here."""


class KillsQuery(BaseException):
    """A handler's failure that no `process` catches."""


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
    """One query over one log and one checkpoint; `output` is what its sink has, batch by batch."""

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
        self.committed = 0  # Spark's commit log
        self.planned = 0  # Spark's offset log
        self.output: dict[int, list[Row]] = {}
        self.source: Coordinator | None = None
        self.starts = 0
        self.task_dies: str | None = None  # "before" or "after" it has published what it took

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.die()

    def die(self) -> None:
        """End the process: the lock and the connection end with it."""
        source, self.source = self.source, None
        if source is not None:
            source.close()

    def switch_ack(self) -> None:
        """Have the next start use the other way to acknowledge; tasks have only one."""
        if self.options.shares:
            return
        self.options = replace(self.options, ack="commit" if self.options.ack == "wal" else "wal")

    def start(self) -> Coordinator:
        """Start, or start again: a batch that was planned and not committed is replayed first by `step`."""
        if self.source is None:
            self.starts += 1
            self.source = opened(self.options)
        return self.source

    def step(
        self, handler: Callable[[Row], object] = lambda _: None, *, evidence: bool = False
    ) -> list[Row] | None:
        """Run one batch, and return its rows; None: there was none. A killer leaves the batch uncommitted."""
        source = self.start()
        if self.planned == self.committed:
            number = source.latest(self.committed, self.options.most_messages)
            if number == self.committed:
                return None
            self.planned = number
        number = self.planned
        tasks = [[row for part in source.slices(number) for row in self._read(*part)]]
        tasks += [self._shared(share) for share in source.shares(number)]
        passed: list[Row] = []
        for task, rows in enumerate(tasks):
            try:
                passed += self._processed(f"{number - 1:012d}-{task}", rows, handler)
            except KillsQuery as error:
                if evidence:
                    self.records.fail(number - 1, str(error))
                self.die()
                raise
        self.output[number] = passed
        self.committed = number
        return [row for rows in tasks for row in rows]

    def _processed(self, name: str, rows: list[Row], handler: Callable[[Row], object]) -> list[Row]:
        """Return the rows that the handler does not refuse, and write the verdict on a task's rows."""
        passed: list[Row] = []
        refused: dict[str, Refusal] = {}
        for row in rows:
            try:
                handler(row)
            except Exception as error:  # noqa: BLE001 - as `process` does
                refused[row["message_id"]] = Refusal(row["delivery_count"], "fail", repr(error))
            else:
                passed.append(row)
        self.records.judge(name, refused)
        return passed

    def _shared(self, share: Share) -> list[Row]:
        """Run a task that consumes for itself; again, if it is to die."""
        dies, self.task_dies = self.task_dies, None
        if dies is not None:
            publish = TaskParts.publish

            def dying(parts: TaskParts, name: str, rows: pa.Table, undecodable: int = 0) -> bool:
                if dies == "after":
                    publish(parts, name, rows, undecodable)
                raise Killed

            with pytest.MonkeyPatch.context() as patch, suppress(Killed):
                patch.setattr(TaskParts, "publish", dying)
                rows_of_share(share)
        rows: list[Row] = rows_of_share(share).to_pylist()
        return rows

    def drain(
        self, handler: Callable[[Row], object] = lambda _: None, *, evidence: bool = False, most: int = 5000
    ) -> None:
        """Run batches, and start again after each failure, until nothing comes and nothing waits."""
        idle = 0
        for _ in range(most):
            try:
                idle = 0 if self.step(handler, evidence=evidence) is not None else idle + 1
            except KillsQuery:
                continue
            assert self.source is not None
            told = self.source.report() or {}
            if idle > 2 and not told.get("parked") and not told.get("suspects"):
                return
        raise AssertionError(f"not drained after {most} batches: {told}")

    def bodies(self) -> list[str]:
        """Return the bodies that the sink has."""
        return [row["body"].decode() for rows in self.output.values() for row in rows]

    def _read(self, name: str, begin: int, end: int) -> list[Row]:
        rows: list[Row] = read_table(self.store, name).slice(begin, end - begin).to_pylist()
        return rows


def clock_and_broker() -> tuple[ManualClock, MemoryBroker]:
    """Return a broker in virtual time."""
    clock = ManualClock(auto_advance=True)
    return clock, MemoryBroker(clock=clock)

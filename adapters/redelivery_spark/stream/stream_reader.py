"""What Spark calls, and what it gets: a thin class over the coordinator."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from redelivery.errors import ConfigurationError
from redelivery_spark.schema import columns_for
from redelivery_spark.wal.arrow_files import read_table
from redelivery_spark.wal.store import store_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from redelivery_spark.executors.share import Share
    from redelivery_spark.options.stream_options import SourceOptions
    from redelivery_spark.stream.coordinator import Coordinator

__all__ = ["RedeliveryStreamReader", "SegmentSlice", "SharePartition"]

# In one Arrow batch that a task hands to Spark.
ROWS = 10_000


def _end(*_: object) -> None:
    sys.exit(0)


class SegmentSlice(InputPartition):
    """Some rows of a batch. Holds paths and numbers, and nothing secret."""

    def __init__(self, wal_dir: str, name: str, begin: int, end: int, columns: list[str]) -> None:
        super().__init__(name)
        self.wal_dir = wal_dir
        self.name = name
        self.begin = begin
        self.end = end
        self.columns = columns


class SharePartition(InputPartition):
    """What a task takes from the broker itself. Holds nothing secret."""

    def __init__(self, share: Share, columns: list[str]) -> None:
        super().__init__(share.name)
        self.share = share
        self.columns = columns


class RedeliveryStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One query's reader. Spark makes it in several processes; only the stream runner's is ever asked for batches."""

    def __init__(self, options: SourceOptions | ConfigurationError) -> None:
        """With an error it raises that when it is asked: Spark's runner reports one of its making badly."""
        self._refusal = options if isinstance(options, ConfigurationError) else None
        self._options = None if isinstance(options, ConfigurationError) else options
        self._coordinator: Coordinator | None = None
        self._handle: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        """What goes to executors: nothing. They read partitions, which tell all."""
        return {"_refusal": None, "_options": None, "_coordinator": None, "_handle": None}

    # In the driver's stream runner.

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset before the first batch. Raises ConfigurationError: the options make no sense."""
        self._allowed()
        return {"n": 0}

    def getDefaultReadLimit(self) -> ReadMaxRows:
        """Return the limit of one batch. Raises ConfigurationError: the options make no sense."""
        return ReadMaxRows(self._allowed().most_messages)

    def prepareForTriggerAvailableNow(self) -> None:
        """Learn that the query is to end once what is there now has been processed."""
        self._open().available_now()

    def latestOffset(self, start: dict[str, Any], limit: object) -> dict[str, Any]:
        """Return the offset of the next batch, or `start`. All up to `start` has been committed by Spark."""
        coordinator = self._open()
        self._check(start, coordinator)
        number = coordinator.latest(int(start["n"]), self._most(limit))
        return start if number == start["n"] else {"n": number, "log": coordinator.log}

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return what the query's progress shows."""
        coordinator = self._coordinator
        return None if coordinator is None else coordinator.report()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the slices of a batch."""
        if start["n"] == end["n"]:
            return []
        options, coordinator = self._options, self._open()
        assert options is not None
        self._check(end, coordinator)
        columns = columns_for(text=options.text, error=options.error)
        number = int(end["n"])
        slices = [SegmentSlice(options.wal_dir, *each, columns) for each in coordinator.slices(number)]
        return [*slices, *(SharePartition(each, columns) for each in coordinator.shares(number))]

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: it comes late or never. The next `latestOffset` tells what was committed."""

    def stop(self) -> None:
        """Close the connection: the broker takes back what was not settled."""
        coordinator, self._coordinator = self._coordinator, None
        if coordinator is not None:
            coordinator.close()

    def _allowed(self) -> SourceOptions:
        if self._refusal is not None:
            raise self._refusal
        assert self._options is not None, "executors have none, and do not ask"
        return self._options

    def _open(self) -> Coordinator:
        if self._coordinator is None:
            from redelivery_spark.stream.startup import opened  # noqa: PLC0415 - executors need none of it

            self._coordinator = opened(self._allowed())
            if threading.current_thread() is threading.main_thread():
                # Spark ends the runner with SIGTERM and does not call stop() by itself.
                with contextlib.suppress(ValueError):
                    signal.signal(signal.SIGTERM, _end)
        return self._coordinator

    def _most(self, limit: object) -> int:
        assert self._options is not None
        most = self._options.most_messages
        if isinstance(limit, ReadMaxRows):
            return min(most, int(limit.max_rows))
        return most

    @staticmethod
    def _check(offset: dict[str, Any], coordinator: Coordinator) -> None:
        """Refuse a log that is not the checkpoint's. Raises ConfigurationError."""
        log = offset.get("log")
        if offset["n"] and log != coordinator.log:
            raise ConfigurationError(
                f"walDir holds the log {coordinator.log}, and the checkpoint was written with {log}: each query needs "
                "a checkpoint and a walDir of its own, which live and end together",
                option="walDir",
            )
        if not offset["n"]:
            coordinator.check_new()

    # In the executors.

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Go through the rows of a slice. The same at each call."""
        if isinstance(partition, SharePartition):
            from redelivery_spark.executors.task_consumer import rows_of_share  # noqa: PLC0415 - a driver's tasks need none

            part = rows_of_share(partition.share).select(partition.columns)
        else:
            assert isinstance(partition, SegmentSlice)
            table = read_table(store_at(partition.wal_dir), partition.name)
            part = table.select(partition.columns).slice(partition.begin, partition.end - partition.begin)
        yield from part.replace_schema_metadata().to_batches(max_chunksize=ROWS)

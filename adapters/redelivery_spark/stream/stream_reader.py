"""Stream reader that Spark calls: a thin class over the coordinator."""

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
from redelivery_spark.executors.segment_reader import SegmentSlice, rows_of
from redelivery_spark.stream.offsets import log_of, offset_of, vector_of
from redelivery_spark.stream.slicing import sliced

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from redelivery_spark.options.stream_options import SourceOptions
    from redelivery_spark.stream.coordinator import Coordinator

__all__ = ["RedeliveryStreamReader"]


def _end(*_: object) -> None:
    # Spark sends the signal twice within a millisecond. The second one would end `stop` before it has written anything.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(0)


class RedeliveryStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of one query. Spark makes it in several processes, and asks only the stream runner's for batches."""

    def __init__(self, options: SourceOptions | ConfigurationError, columns: Sequence[str] = ()) -> None:
        """`options`: or their error, which the first call raises: Spark's runner reports an error of the constructor
        badly.
        """
        self._refusal = options if isinstance(options, ConfigurationError) else None
        self._options = None if isinstance(options, ConfigurationError) else options
        self._columns = tuple(columns)
        self._coordinator: Coordinator | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return nothing for executors: the partitions that they read hold all that they need."""
        return {"_refusal": None, "_options": None, "_columns": (), "_coordinator": None}

    # In Spark's stream runner, on the Spark driver.

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset before the first batch. Raises ConfigurationError: the options cannot be honoured."""
        self._allowed()
        return {}

    def getDefaultReadLimit(self) -> ReadMaxRows:
        """Return the limit of one batch. Raises ConfigurationError: the options cannot be honoured."""
        return ReadMaxRows(self._allowed().most_rows)

    def prepareForTriggerAvailableNow(self) -> None:
        """End the query once the messages that are there now have been processed."""
        self._open().available_now()

    def latestOffset(self, start: dict[str, Any], limit: object) -> dict[str, Any]:
        """Return the offset of the next batch, or `start`. Spark has committed all up to `start`."""
        coordinator = self._open()
        self._check(start, coordinator)
        begin = vector_of(start)
        end = coordinator.latest(begin, self._most(limit))
        return start if end == begin else offset_of(end, coordinator.log)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the source's part of the query's progress."""
        coordinator = self._coordinator
        return None if coordinator is None else coordinator.report()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the slices of a batch."""
        if start == end:
            return []
        options, coordinator = self._allowed(), self._open()
        self._check(end, coordinator)
        segments = coordinator.segments(vector_of(start), vector_of(end))
        return [
            SegmentSlice(options.wal_dir, parts, self._columns, options.decode, options.on_decode_error)
            for parts in sliced(segments, options.partitions)
        ]

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: Spark calls it late or never. The next `latestOffset` shows what was committed."""

    def stop(self) -> None:
        """Close the connection: the broker takes back messages that were not accepted."""
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
                # Spark ends the runner with SIGTERM; the code around it in Spark then calls `stop`.
                with contextlib.suppress(ValueError):
                    signal.signal(signal.SIGTERM, _end)
        return self._coordinator

    def _most(self, limit: object) -> int:
        most = self._allowed().most_rows
        return min(most, int(limit.max_rows)) if isinstance(limit, ReadMaxRows) else most

    @staticmethod
    def _check(offset: dict[str, Any], coordinator: Coordinator) -> None:
        """Refuse a log that does not belong to the checkpoint. Raises ConfigurationError."""
        vector, log = vector_of(offset), log_of(offset)
        if vector and log != coordinator.log:
            raise ConfigurationError(
                f"walDir: it has the log {coordinator.log}, and the checkpoint was written with {log}; give each query "
                "its own checkpoint and walDir, and make and delete the two together",
                option="walDir",
            )
        if not vector:
            coordinator.check_new()

    # In the executors.

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of a slice as Arrow batches. They are the same at each call."""
        assert isinstance(partition, SegmentSlice)
        yield from rows_of(partition)

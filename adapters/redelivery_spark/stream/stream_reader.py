"""Stream reader that Spark calls: a thin class over the coordinator."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadMaxRows, SupportsTriggerAvailableNow

from redelivery.driver.port import result_log
from redelivery.errors import ConfigurationError
from redelivery_spark.executors.segment_reader import SegmentSlice, rows_of
from redelivery_spark.stream.coordinator import Coordinator
from redelivery_spark.stream.engine_driver import EngineDriver
from redelivery_spark.stream.journal import FOLDERS, Journal
from redelivery_spark.stream.lane_reader import LaneReader
from redelivery_spark.stream.lanes import Lanes, log_of, offset_of, vector_of
from redelivery_spark.stream.readers import ReaderProcesses, ReadingThread
from redelivery_spark.stream.rows_in_doubt import RowsInDoubt
from redelivery_spark.stream.slicing import sliced
from redelivery_spark.stream.source_connection import SourceConnection
from redelivery_spark.wal.lane import LANES, REDELIVERIES
from redelivery_spark.wal.places import tag_of
from redelivery_spark.wal.segment_files import folder_of
from redelivery_spark.wal.store import LogTaken, prepared
from redelivery_spark.wal.wal_state import WalLedger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from redelivery_spark.options.source_options import SourceOptions
    from redelivery_spark.stream.readers import Readers
    from redelivery_spark.wal.wal_store import WalStore

__all__ = ["LogInUse", "RedeliveryStreamReader", "opened"]


# ---- Stream reader ---------------------------------------------------------------------------------------


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


# ---- Startup ---------------------------------------------------------------------------------------------
# Construction of a running source, in the one process that runs it.

# Seconds for the runner of the query's last start to end: it has the lock until then.
PATIENCE = 10.0


class LogInUse(ConfigurationError):
    """The log is locked: by another query, or by the runner of a Spark that was killed, which ends by itself."""


def opened(options: SourceOptions, reading: type[ReadingThread] = ReadingThread) -> Coordinator:
    """Take the log, connect, and subscribe. `reading`: class of the reader's thread.

    Raises:
        ConfigurationError: The log cannot be used.
        LogInUse: Another process has the log.
        RedeliveryError: The broker cannot be reached, or refuses.
    """
    store = prepared(options.wal_dir, *FOLDERS, *map(folder_of, range(options.readers + 1)))
    unlock = _locked(store)
    try:
        return _built(options, store, unlock, reading)
    except BaseException:
        unlock()
        raise


def _built(
    options: SourceOptions, store: WalStore, unlock: Callable[[], None], reading: type[ReadingThread]
) -> Coordinator:
    source = SourceConnection(options)

    def leave() -> None:
        source.close()
        unlock()

    try:
        source.connect()
        lanes = Lanes(store, options.readers)
        journal = _journal(options, store, lanes, source)
        readers = _readers(options, lanes, journal, source, reading)
    except BaseException:
        source.close()
        raise
    return Coordinator(options, journal, readers, source.clock, source.most_parked, leave)


def _readers(
    options: SourceOptions,
    lanes: Lanes,
    journal: Journal,
    source: SourceConnection,
    reading: type[ReadingThread],
) -> Readers:
    log = journal.state.log
    if options.readers > 1:
        for number in range(1, options.readers + 1):
            lanes[number].removes = False
        return ReaderProcesses(options, lanes, log, journal.start, source.clock)
    source.begin()
    own = lanes[1]
    # Unused lanes are included: an older start's readers may be about to append to them.
    others = [lanes[number] for number in range(LANES) if number not in (REDELIVERIES, own.number)]
    doubt = RowsInDoubt(own, others, source.clock)
    reader = LaneReader(source, own, doubt, log, options.bytes_ahead, journal.check)
    return reading(reader, source, source.clock)


def _journal(options: SourceOptions, store: WalStore, lanes: Lanes, source: SourceConnection) -> Journal:
    def redeliveries(log: str) -> EngineDriver:
        return EngineDriver(
            source.engine_for_log(),
            source.log_capabilities(),
            WalLedger(),
            result_log(options.destination, source.settings.policies, source.clock),
            partial(source.forward, log),
            source.clock,
        )

    for folder in (*FOLDERS, *(lane.folder for lane in lanes)):
        store.sweep(folder)
    try:
        return Journal(store, tag_of(options.wal_dir), lanes, redeliveries, source.clock)
    except LogTaken:
        # Taken by an older runner that has not ended, or by another start: the owner is clear a moment later.
        raise LogInUse(
            f"walDir={store.url}: being written by another start of a query ({store.holder()}); give each query its "
            "own walDir",
            option="walDir",
        ) from None


def _locked(store: WalStore) -> Callable[[], None]:
    deadline = time.monotonic() + PATIENCE
    while (unlock := store.lock()) is None:
        if time.monotonic() > deadline:
            raise LogInUse(
                f"walDir={store.url}: in use by another query ({store.holder()}); give each query its own walDir",
                option="walDir",
            )
        time.sleep(0.1)
    return unlock

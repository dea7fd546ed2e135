"""Construction of a running source, in the one process that runs it."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from redelivery.driver.port import result_log
from redelivery.errors import ConfigurationError
from redelivery_spark.stream.coordinator import Coordinator
from redelivery_spark.stream.engine_driver import EngineDriver
from redelivery_spark.stream.journal import FOLDERS, Journal
from redelivery_spark.stream.lane_reader import LaneReader
from redelivery_spark.stream.lanes import Lanes
from redelivery_spark.stream.reader_processes import ReaderProcesses
from redelivery_spark.stream.readers import ReadingThread
from redelivery_spark.stream.rows_in_doubt import RowsInDoubt
from redelivery_spark.stream.source_connection import SourceConnection
from redelivery_spark.wal.lane import LANES, REDELIVERIES
from redelivery_spark.wal.places import tag_of
from redelivery_spark.wal.segment_schema import folder_of
from redelivery_spark.wal.store import LogTaken, prepared
from redelivery_spark.wal.wal_ledger import WalLedger

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery_spark.options.stream_options import SourceOptions
    from redelivery_spark.stream.readers import Readers
    from redelivery_spark.wal.wal_store import WalStore

__all__ = ["LogInUse", "opened"]

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

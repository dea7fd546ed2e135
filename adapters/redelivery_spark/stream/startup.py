"""Makes the parts of a running source, in the one process that runs it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from redelivery.driver.port import result_log
from redelivery.errors import ConfigurationError
from redelivery_spark.stream.coordinator import Coordinator
from redelivery_spark.stream.engine_driver import EngineDriver
from redelivery_spark.stream.journal import FOLDERS, Journal
from redelivery_spark.stream.source_connection import SourceConnection
from redelivery_spark.stream.unacked_messages import UnackedMessages
from redelivery_spark.wal.store import LogTaken, prepared
from redelivery_spark.wal.wal_ledger import WalLedger

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery_spark.options.stream_options import SourceOptions
    from redelivery_spark.wal.wal_store import WalStore

__all__ = ["LogInUse", "opened"]

# Seconds for the runner of the query's last start to end, which has the lock until then.
PATIENCE = 10.0


class LogInUse(ConfigurationError):
    """The log is locked: by another query, or by the runner of a Spark that was killed, which ends by itself."""


def opened(options: SourceOptions) -> Coordinator:
    """Take the log, connect, and subscribe.

    Raises:
        ConfigurationError: the log cannot be used.
        LogInUse: somebody has it.
        RedeliveryError: the broker cannot be reached, or refuses.
    """
    store = prepared(options.wal_dir, *FOLDERS)
    unlock = _locked(store)
    try:
        return _built(options, store, unlock)
    except BaseException:
        unlock()
        raise


def _built(options: SourceOptions, store: WalStore, unlock: Callable[[], None]) -> Coordinator:
    intake = SourceConnection(options)
    originals = UnackedMessages(intake)
    try:
        intake.begin()

        def redeliveries() -> EngineDriver:
            return EngineDriver(
                intake.engine_for_log(),
                intake.log_capabilities(),
                WalLedger(),
                result_log(options.destination, intake.settings.policies, intake.clock),
                originals,
                intake.clock,
            )

        journal = _journal(store, redeliveries, intake, originals)
        if options.shares:
            _refuse_kept(journal)
    except BaseException:
        intake.close()
        raise
    return Coordinator(options, intake, journal, unlock)


def _refuse_kept(journal: Journal) -> None:
    """Refuse to have tasks consume what the broker keeps: they would take it for new, and accept it."""
    kept = len([fact for fact in journal.state.facts if fact.kept])
    if kept:
        raise ConfigurationError(
            f"consumers=executors: {kept} rows wait in the log whose messages the broker still has (ack=commit, or a "
            "body that did not arrive whole); go on with consumers=driver until they are done with",
            option="consumers",
        )


def _journal(
    store: WalStore,
    redeliveries: Callable[[], EngineDriver],
    intake: SourceConnection,
    originals: UnackedMessages,
) -> Journal:
    try:
        return Journal(store, redeliveries, intake.clock, intake, originals)
    except LogTaken:
        # By an older runner that has not ended, or by another start: whose log it is shows in a moment.
        raise LogInUse(
            f"walDir={store.url} is being written by another start of a query ({store.holder()})",
            option="walDir",
        ) from None


def _locked(store: WalStore) -> Callable[[], None]:
    deadline = time.monotonic() + PATIENCE
    while (unlock := store.lock()) is None:
        if time.monotonic() > deadline:
            raise LogInUse(
                f"walDir={store.url} is in use by another query ({store.holder()}): each query needs a log of its own",
                option="walDir",
            )
        time.sleep(0.1)
    return unlock

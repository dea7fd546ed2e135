"""Makes the parts of a running source, in the one process that runs it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from redelivery.errors import RedeliveryError
from redelivery_spark.coordinator import Coordinator
from redelivery_spark.intake import Intake
from redelivery_spark.journal import FOLDERS, Journal
from redelivery_spark.log.ledger import LogLedger
from redelivery_spark.log.store import store_at
from redelivery_spark.originals import Originals
from redelivery_spark.redeliveries import Redeliveries

if TYPE_CHECKING:
    from redelivery_spark.log.store import Folder
    from redelivery_spark.options import SourceOptions

__all__ = ["opened"]

PATIENCE = 10.0  # seconds for the runner of the query's last start to end, which has the lock until then


def opened(options: SourceOptions) -> Coordinator:
    """Take the log, connect, and subscribe.

    Raises:
        ConfigurationError: the log cannot be used.
        RedeliveryError: the broker cannot be reached, or refuses; or another process has the log.
    """
    store = store_at(options.wal_dir)
    store.prepare(*FOLDERS)
    lock = _locked(store)
    intake = Intake(options)
    originals = Originals(intake)
    try:
        intake.begin()

        def redeliveries() -> Redeliveries:
            return Redeliveries(
                intake.engine_for_log(),
                intake.log_capabilities(),
                LogLedger(),
                intake.settings.policies,
                originals,
                intake.clock,
            )

        journal = Journal(store, redeliveries, intake.clock, intake, originals)
    except BaseException:
        intake.close()
        store.unlock(lock)
        raise
    return Coordinator(options, intake, journal, lambda: store.unlock(lock))


def _locked(store: Folder) -> int:
    deadline = time.monotonic() + PATIENCE
    while (lock := store.lock()) is None:
        if time.monotonic() > deadline:
            # No ConfigurationError: it may be the runner of the last start, whose Spark was killed, and which will end.
            raise RedeliveryError(
                f"walDir={store.path} is in use by another query ({store.holder()}): each query needs a log of its own"
            )
        time.sleep(0.1)
    return lock

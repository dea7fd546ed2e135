"""Conversion of a row's failure state: the engine's records and the log's facts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.core.delivery import Cause, Record
from redelivery.core.ledger_entry import Entry, fingerprint
from redelivery_spark.wal.wal_state import Fact

if TYPE_CHECKING:
    from redelivery.clock import Clock
    from redelivery_spark.stream.logged_delivery import LoggedDelivery
    from redelivery_spark.wal.wal_ledger import WalLedger

__all__ = ["fact_of", "record_of"]


def record_of(fact: Fact, clock: Clock) -> Record:
    """Return the engine's record of a row that was in the log.

    No row waits for longer than its delay, wherever the clock stood when that was written.
    """
    record = Record()
    now = clock.monotonic()
    offset, entry = clock.time() - now, fact.entry
    record.count, record.deferrals, record.exhausted = entry.count, fact.deferrals, fact.exhausted
    record.cause = None if entry.cause is None else Cause(entry.cause)
    record.first_failure = None if entry.first is None else entry.first - offset
    record.last_failure = None if entry.last is None else entry.last - offset
    record.poisoned = entry.poisoned
    record.due = now if fact.due is None else min(fact.due - offset, now + fact.delay)
    return record


def fact_of(row: LoggedDelivery, ledger: WalLedger, clock: Clock) -> Fact:
    """Return the facts of a row to be stored."""
    entry, record = ledger.entries.get(fingerprint(row)) or Entry(), row.record
    if record is None:
        return Fact(row.place, entry, passed=row.passed)
    due = None if record.due is None else record.due + clock.time() - clock.monotonic()
    return Fact(row.place, entry, due, row.delay, record.deferrals, record.exhausted, row.passed)

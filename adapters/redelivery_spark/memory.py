"""What is known of a row, as the engine has it and as the log writes it down."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.core.delivery import Cause, Record
from redelivery.core.ledger import Entry, fingerprint
from redelivery_spark.log.state import Fact

if TYPE_CHECKING:
    from redelivery.clock import Clock
    from redelivery_spark.log.ledger import LogLedger
    from redelivery_spark.rows import LoggedDelivery

__all__ = ["fact_of", "recorded"]


def recorded(fact: Fact | None, clock: Clock) -> Record:
    """Return what the engine is told of a row that the log has held."""
    record = Record()
    if fact is None:
        return record
    offset, entry = clock.time() - clock.monotonic(), fact.entry
    record.count, record.deferrals, record.exhausted = entry.count, fact.deferrals, fact.exhausted
    record.cause = None if entry.cause is None else Cause(entry.cause)
    record.first_failure = None if entry.first is None else entry.first - offset
    record.last_failure = None if entry.last is None else entry.last - offset
    record.poisoned = entry.poisoned
    record.due = None if fact.due is None else fact.due - offset
    return record


def fact_of(row: LoggedDelivery, ledger: LogLedger, clock: Clock) -> Fact | None:
    """Return what is to be written down of a row; None: it has never failed."""
    entry, record = ledger.entries.get(fingerprint(row)), row.record
    if record is None:
        return None if entry is None else Fact(entry)
    due = None if record.due is None else record.due + clock.time() - clock.monotonic()
    return Fact(entry or Entry(), due, record.deferrals, record.exhausted)

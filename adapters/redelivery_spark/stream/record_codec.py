"""What is known of a row, as the engine has it and as the log writes it down."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from redelivery.core.delivery import Cause, Record
from redelivery.core.ledger_entry import Entry, fingerprint
from redelivery_spark.stream.rows import LoggedDelivery, places_of, rows_of
from redelivery_spark.wal.wal_state import Fact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redelivery.clock import Clock
    from redelivery_spark.stream.bisection import Bisection
    from redelivery_spark.stream.engine_driver import EngineDriver
    from redelivery_spark.wal.wal_ledger import WalLedger
    from redelivery_spark.wal.wal_state import Place, State, States

__all__ = ["rows_that_wait", "state_of"]


def rows_that_wait(states: States, facts: Sequence[Fact], clock: Clock) -> list[LoggedDelivery]:
    """Return the rows that facts are of, from where they were written when they began to wait."""
    found: dict[Place, LoggedDelivery] = {}
    wanted = {fact.place for fact in facts}
    for number in {place[0] for place in wanted}:
        table = states.rows(number)
        places = {place: at for place, at in places_of(table).items() if place in wanted}
        for place, row in zip(places, rows_of(table, places.values()), strict=True):
            found[place] = LoggedDelivery(row, place)
    for fact in facts:
        known = found[fact.place]
        known.failed, known.delay, known.record = fact.failed, fact.delay, _recorded(fact, clock)
        if not fact.kept:
            known.without_original()
    return [found[fact.place] for fact in facts]


def _recorded(fact: Fact, clock: Clock) -> Record:
    """Return what the engine is told of a row that the log has held.

    Nothing waits for longer than it was to wait, wherever the clock stood when that was written.
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


def state_of(
    state: State,
    rows: Sequence[LoggedDelivery],
    waiting: EngineDriver,
    isolation: Bisection[Place],
    clock: Clock,
) -> State:
    """Return the state to be written down, with what is known of the rows that wait."""
    at = {row.place: number for number, row in enumerate(rows)}
    told = replace(state)
    told.totals, told.passed = waiting.added_to(state.totals), isolation.passed
    told.facts = [_fact_of(row, waiting.ledger, clock) for row in rows]
    told.groups = [[at[place] for place in group] for group in isolation.groups]
    return told


def _fact_of(row: LoggedDelivery, ledger: WalLedger, clock: Clock) -> Fact:
    """Return what is to be written down of a row."""
    entry, record = ledger.entries.get(fingerprint(row)) or Entry(), row.record
    if record is None:
        return Fact(row.place, entry, failed=row.failed, kept=row.original)
    due = None if record.due is None else record.due + clock.time() - clock.monotonic()
    return Fact(
        row.place, entry, due, row.delay, record.deferrals, record.exhausted, row.failed, row.original
    )

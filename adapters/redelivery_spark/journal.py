"""The log as one query uses it: the batch on its way, what waits, and what is written of it when."""

from __future__ import annotations

import itertools
import logging
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from redelivery.core.delivery import Cause
from redelivery.core.ledger import fingerprint
from redelivery.errors import RedeliveryError
from redelivery_spark.isolation import Isolation
from redelivery_spark.log.records import FAILURES, VERDICTS, Records, Refusal
from redelivery_spark.log.segments import FOLDER as SEGMENTS
from redelivery_spark.log.segments import KEPT, Segments, empty
from redelivery_spark.log.state import FOLDER as STATES
from redelivery_spark.log.state import Fact, State, States
from redelivery_spark.memory import fact_of, recorded
from redelivery_spark.rows import LoggedDelivery, identities_of, identity_of, key_of, rows_of, table_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    import pyarrow as pa

    from redelivery.clock import Clock
    from redelivery.core.delivery import Delivery
    from redelivery_spark.intake import Intake
    from redelivery_spark.log.store import Store
    from redelivery_spark.redeliveries import Redeliveries

__all__ = ["FOLDERS", "Journal"]

logger = logging.getLogger("redelivery.spark")
FOLDERS = (SEGMENTS, STATES, VERDICTS, FAILURES)


class Journal:
    """Rows and batches of one log. One thread; its process has the log's lock."""

    def __init__(
        self, store: Store, redeliveries: Callable[[], Redeliveries], clock: Clock, intake: Intake
    ) -> None:
        for folder in FOLDERS:
            store.sweep(folder)
        self._states = States(store)
        self.segments = Segments(store, self._states.check)
        self.records = Records(store)
        found = self._states.load()
        self.state = found or State(log=uuid.uuid4().hex)
        self._states.publish(self.state)  # the log is this start's from now on
        self._make = redeliveries
        self._intake = intake
        self._clock = clock
        self._tickets = itertools.count()
        self._resumed = False
        self._grouped: dict[int, LoggedDelivery] = {}  # rows in groups, by ticket
        # The batch on its way, its rows, and those of them that are known here.
        self._number: int | None = None
        self._table = empty()
        self._running: dict[Hashable, LoggedDelivery] = {}
        # Of what the broker may send again, once it does: rows that are here, and those of the last batches.
        self._here: tuple[set[Hashable], set[Hashable]] | None = None
        self.redeliveries: Redeliveries
        self.isolation: Isolation

    # A restart.

    def resume(self, number: int) -> None:
        """Take up what the log holds; batch `number`, if there is one, is on its way or has been processed."""
        if self._resumed:
            return
        self._resumed = True
        self.redeliveries = self._make()
        state = self.state
        rows = [self._logged(row) for row in rows_of(state.rows, range(state.rows.num_rows))]
        in_groups = {at for group in state.groups for at in group}
        self._grouped = {rows[at].ticket: rows[at] for at in in_groups}
        tickets = [[rows[at].ticket for at in group] for group in state.groups]
        self.isolation = Isolation(tickets, state.barren, [rows[at].ticket for at in state.last])
        if number > state.settled and number != state.emptied and self.segments.exists(number):
            self._number, self._table = number, self.segments.read(number)
        pending = set(identities_of(self._table))
        alone: list[tuple[LoggedDelivery, Fact | None]] = []
        running: list[LoggedDelivery] = []
        for at, (row, fact) in enumerate(zip(rows, state.facts, strict=True)):
            own = row.key in pending
            if fact is not None:  # who is in a batch already needs no other turn
                suspect = fact.entry.suspect and not own
                self.redeliveries.ledger.entries[fingerprint(row)] = replace(fact.entry, suspect=suspect)
            if own or at in in_groups:
                row.record = recorded(fact, self._clock)
                row.record.due = None
            if at in in_groups:
                self._running |= {row.key: row} if own else {}
            elif own:
                running.append(row)
            else:
                alone.append((row, fact))
        for row in running:
            self.redeliveries.add(row)
            self._running[row.key] = row
        self.redeliveries.restore(
            [row for row, _ in alone], [recorded(fact, self._clock) for _, fact in alone]
        )

    # A batch.

    def began(self, number: int, table: pa.Table, rows: Iterable[LoggedDelivery]) -> None:
        """Learn of a batch that was published; `rows`: those of it that are known here."""
        self._number, self._table = number, table
        self._running = {row.key: row for row in rows}
        self._here = None

    def settle(self, number: int) -> None:
        """Take batch `number`, and all before it, for processed: Spark has committed them.

        Raises:
            RedeliveryError: the log and the checkpoint do not belong together.
        """
        state = self.state
        pending = number + 1 if self.segments.exists(number + 1) else number
        self.resume(pending)
        newest = max(self.segments.numbers(), default=0)
        if number < max(state.settled, newest - 1):
            raise RedeliveryError(
                f"the write-ahead log has come to batch {newest}, and the checkpoint only to {number}: "
                "the checkpoint is older than the log, or another query's"
            )
        if number == state.settled:
            return
        if self._number != number and not self.segments.exists(number) and state.emptied != number:
            raise RedeliveryError(
                f"the checkpoint has come to batch {number}, and the write-ahead log has none: the log is older than "
                "the checkpoint, or another query's"
            )
        # First the number, or what is written of the batch would be read as if it were still to be settled.
        stale = bool(state.attempts) or state.emptied is not None
        state.settled, state.attempts, state.emptied = number, 0, None
        if self._number == number:
            self._settle_rows(stale=stale)
        elif stale:
            self.save()
        self.records.forget_failures()  # of the empty replay of a batch that was given up, too
        self.segments.drop_settled(number)

    def _settle_rows(self, *, stale: bool) -> None:
        names, refused = self.records.verdicts()
        table, running = self._table, self._running
        if refused or running or self.isolation.barren or stale:
            tickets = [row.ticket for row in running.values() if row.ticket in self._grouped]
            for key, row in running.items():
                refusal = refused.get(row.identity)
                self._settle_row(key, row, refusal if _meant(refusal, row) else None)
            self.isolation.succeeded(tickets)
            self._refuse_fresh(refused)
            self.save()
        self.state.totals["accepted"] += table.num_rows
        self._intake.settle_kept(self._done_with())
        self.records.forget(names)
        self._ended()

    def _ended(self) -> None:
        """Have no batch on its way any more."""
        self._number, self._table, self._running = None, empty(), {}
        self._here = None

    def _settle_row(self, key: Hashable, row: LoggedDelivery, refusal: Refusal | None) -> None:
        waiting = self.redeliveries
        if self._grouped.pop(row.ticket, None) is not None:
            if refusal is None and fingerprint(row) not in waiting.ledger.entries:
                self._intake.accept(key)  # it was a suspect only because of the others
                return
            waiting.add(row)
        if refusal is None:
            waiting.succeeded(row)
        else:
            self._refuse(row, refusal)

    def _refuse_fresh(self, refused: dict[str, Refusal]) -> None:
        """Take in the rows that failed for the first time."""
        if not refused:
            return
        table, running = self._table, self._running
        ids = table.column("message_id").to_pylist()
        numbers = [at for at, each in enumerate(ids) if each in refused]
        for row in rows_of(table, numbers):
            if identity_of(row) not in running and row["delivery_count"] == refused[row["message_id"]].count:
                logged = self._logged(row)
                self.redeliveries.add(logged)
                self._refuse(logged, refused[logged.identity])

    def _refuse(self, row: LoggedDelivery, refusal: Refusal) -> None:
        self.state.totals["accepted"] -= 1
        self.redeliveries.failed(row, refusal.kind, Cause.of(refusal.cause), refusal.delay)

    def _done_with(self) -> Sequence[Hashable]:
        """Return which rows of the batch nothing more is to be done with."""
        if not self._intake.keeps:
            return ()
        held = {row.key for row in self.redeliveries.held}
        return [k for k in identities_of(self._table) if k not in held]

    def isolate(self, number: int, cause: Cause, fanout: int) -> None:
        """Give batch `number` up as a whole: it is replayed without its rows, which are tried in groups."""
        waiting, table = self.redeliveries, self._table
        rows = [
            self._running.get(identity_of(row)) or self._logged(row)
            for row in rows_of(table, range(table.num_rows))
        ]
        culprit = self.isolation.failed([row.ticket for row in rows], fanout)
        for row in rows:
            engine_has = row in waiting.held
            if culprit is None:
                if engine_has:
                    waiting.part_with(row)
                self._grouped[row.ticket] = row
            else:
                self._grouped.pop(row.ticket, None)
                if not engine_has:
                    waiting.add(row)
                waiting.crashed(row, cause, world=self.isolation.world)
        self.state.emptied, self.state.attempts = number, 0
        self.records.forget(self.records.verdicts()[0])
        self.records.forget_failures()
        self._ended()
        left = f"in {len(self.isolation.groups)} groups" if culprit is None else "alone"
        logger.warning(
            "batch %d is given up (%s): its %d messages are tried again %s",
            number,
            cause.text,
            len(rows),
            left,
        )

    def totals(self) -> dict[str, int]:
        """Return what has become of messages so far."""
        counts, before = self.redeliveries.engine.counts, self.state.totals
        more = {name: getattr(counts, name, 0) for name in before}
        return before | {
            name: before[name] + more[name] for name in ("redelivered", "deferred", "poisoned", "discarded")
        }

    # Rows.

    def identities(self) -> list[Hashable]:
        """Return what the rows of the batch on its way are known by, in order."""
        return identities_of(self._table)

    def group(self, tickets: Sequence[int]) -> list[LoggedDelivery]:
        """Return the rows of a group."""
        return [self._grouped[ticket] for ticket in tickets]

    def _logged(self, row: dict[str, object]) -> LoggedDelivery:
        return LoggedDelivery(row, next(self._tickets))

    def knows(self, delivery: Delivery) -> str | None:
        """Say where a message is that the broker sends again: `held` here, `done`, or None: it is fresh."""
        if delivery.identity is None or not self._intake.may_be_known(delivery):
            return None
        if self._here is None:
            self._here = self._looked_up()
        held, done = self._here
        key = key_of(delivery)
        return "held" if key in held else "done" if key in done else None

    def _looked_up(self) -> tuple[set[Hashable], set[Hashable]]:
        held = {row.key for row in (*self.redeliveries.held, *self._grouped.values())}
        held |= set(identities_of(self._table))
        numbers = self.segments.numbers()
        done: set[Hashable] = set()
        for number in numbers:
            if number > numbers[-1] - KEPT and number != self._number:
                done |= set(identities_of(self.segments.read(number)))
        return held, done

    # Writing.

    def save(self) -> None:
        """Publish what is known now."""
        state, waiting, isolation = self.state, self.redeliveries, self.isolation
        rows = [*waiting.held, *self._grouped.values()]
        at = {row.ticket: number for number, row in enumerate(rows)}
        told = State(**{name: getattr(state, name) for name in State.__slots__})
        told.totals = self.totals()
        told.rows = table_of(rows)
        told.facts = [fact_of(row, self.redeliveries.ledger, self._clock) for row in rows]
        told.groups = [[at[ticket] for ticket in group] for group in isolation.groups]
        told.barren, told.last = isolation.barren, [at[each] for each in isolation.last if each in at]
        self._states.publish(told)
        waiting.changed = False
        self._here = None


def _meant(refusal: Refusal | None, row: LoggedDelivery) -> bool:
    count = 0 if row.record is None else row.record.count
    return refusal is not None and refusal.count == count + 1

"""The log as one query uses it: the batch on its way, what waits, and what is written of it when."""

from __future__ import annotations

import logging
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from redelivery.core.delivery import Cause
from redelivery.core.ledger_entry import fingerprint
from redelivery_spark.stream.bisection import Bisection
from redelivery_spark.stream.expected_messages import ExpectedMessages
from redelivery_spark.stream.record_codec import rows_that_wait, state_of
from redelivery_spark.stream.row_ids import renamed
from redelivery_spark.stream.rows import LoggedDelivery, places_of, rows_of, waiting_rows
from redelivery_spark.stream.stream_duplicates import StreamDuplicates
from redelivery_spark.wal.arrow_files import empty
from redelivery_spark.wal.records import FAILURES, VERDICTS, Records, Refusal, mildest
from redelivery_spark.wal.segments import FOLDER as SEGMENTS
from redelivery_spark.wal.segments import KEPT, Segments
from redelivery_spark.wal.task_parts import FOLDER as PARTS
from redelivery_spark.wal.wal_state import FOLDER as STATES
from redelivery_spark.wal.wal_state import ROWS, State, States

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    import pyarrow as pa

    from redelivery.clock import Clock
    from redelivery_spark.stream.engine_driver import EngineDriver
    from redelivery_spark.stream.source_connection import SourceConnection
    from redelivery_spark.stream.unacked_messages import UnackedMessages
    from redelivery_spark.wal.wal_state import Place
    from redelivery_spark.wal.wal_store import WalStore

__all__ = ["FOLDERS", "Journal"]

logger = logging.getLogger("redelivery.spark")
FOLDERS = (SEGMENTS, PARTS, STATES, ROWS, VERDICTS, FAILURES)


class Journal:
    """Rows and batches of one log. One thread; its process has the log's lock."""

    def __init__(
        self,
        store: WalStore,
        redeliveries: Callable[[], EngineDriver],
        clock: Clock,
        intake: SourceConnection,
        originals: UnackedMessages,
    ) -> None:
        for folder in FOLDERS:
            store.sweep(folder)
        self._states = States(store)
        self.segments = Segments(store, self._states.check)
        self.records = Records(store)
        found = self._states.load()
        self.state = found or State(log=uuid.uuid4().hex)
        # The log is this start's from now on.
        self._states.publish(self.state, 0, None)
        self._make = redeliveries
        self._intake = intake
        self.originals = originals
        self._clock = clock
        self._resumed = False
        self.expected = ExpectedMessages(self.state, originals, clock)
        self.copies = StreamDuplicates(intake, self.segments, self.state, self.expected)
        self._grouped: dict[Place, LoggedDelivery] = {}
        # The batch on its way, its rows, and those of them that were in the log before, by place.
        self._number: int | None = None
        self._table = empty()
        self._running: dict[Place, LoggedDelivery] = {}
        # The batch whose rows begin to wait.
        self._unwritten: tuple[int, pa.Table] = (0, empty())
        # When what tasks took for the last batch was sent.
        self.shared: Sequence[datetime | None] = ()
        self.redeliveries: EngineDriver
        self.isolation: Bisection[Place]

    # A restart.

    def resume(self, number: int) -> None:
        """Take up what the log holds; batch `number`, if there is one, is on its way or has been processed."""
        if self._resumed:
            return
        self._resumed = True
        self.redeliveries = self._make()
        state = self.state
        places = [fact.place for fact in state.facts]
        groups = [[places[at] for at in group] for group in state.groups]
        self.isolation = Bisection(groups, state.passed)
        in_groups = {place for group in groups for place in group}
        if number > state.settled and number != state.emptied and self.segments.opens(number):
            self._number, self._table = number, self.segments.read(number)
        pending = places_of(self._table)
        waiting: list[LoggedDelivery] = []
        for fact, row in zip(
            state.facts, rows_that_wait(self._states, state.facts, self._clock), strict=True
        ):
            own = fact.place in pending
            assert row.record is not None
            # Who is in a batch already needs no other turn.
            suspect = fact.entry.suspect and not own
            if fact.entry.count or fact.entry.suspect:
                self.redeliveries.ledger.entries[fingerprint(row)] = replace(fact.entry, suspect=suspect)
            if own or fact.place in in_groups:
                row.record.due = None
            if own:
                self._running[fact.place] = row
            if fact.place in in_groups:
                self._grouped[fact.place] = row
            elif own:
                self.redeliveries.add(row)
            else:
                waiting.append(row)
        self.redeliveries.restore(waiting)
        self.expected.waiting(self.waiting())

    # A batch.

    def began(self, number: int, table: pa.Table, rows: Iterable[LoggedDelivery]) -> None:
        """Learn of a batch that was published; `rows`: those of it that have been in the log before."""
        self._number, self._table = number, table
        self._running = {row.place: row for row in rows}

    def settle(self, number: int) -> None:
        """Take batch `number`, and all before it, for processed: Spark has committed them.

        Raises:
            ConfigurationError: the log and the checkpoint do not belong together.
        """
        state = self.state
        self.resume(number + 1 if self.segments.exists(number + 1) else number)
        given_up = state.emptied == number
        if not self.segments.follow(state.settled, number, there=self._number == number or given_up):
            return
        # First the number, or what is written of the batch would be read as if it were still to be settled.
        # The first one too: by it a checkpoint that begins anew is known not to be this log's.
        stale = bool(state.attempts) or state.emptied is not None or not state.settled
        state.settled, state.attempts, state.emptied = number, 0, None
        if self._number == number:
            self._settle_rows(number, stale=stale)
        elif stale:
            names, _ = self._judged(number)  # of tasks that were given up
            self.save()
            self.records.forget(names)
        # Of the empty replay of a batch that was given up, too.
        self.records.forget_failures()
        self.segments.drop_settled(number)

    def _complete(self, number: int) -> pa.Table:
        """Have all rows of the batch here, also those that tasks took; return them as they were called so far."""
        undecodable = self.segments.close(number)
        table = self._table if undecodable is None else self.segments.read(number)
        self.shared = ()
        if undecodable is not None:
            self.state.totals["undecodable"] += undecodable
            self.shared = table.slice(self.segments.own(number)).column("timestamp").to_pylist()
            self._table = renamed(table, self.names(), f"{self.state.log}/{number}")
        return table

    def _judged(self, number: int) -> tuple[list[str], dict[str, list[Refusal]]]:
        """Return the verdicts on a batch, and their files; those that come later are of no interest."""
        before, batch = self.state.judged
        found, names, refused = self.records.verdicts(batch + number - before)
        self.state.judged = (number, found)
        return names, refused

    def _settle_rows(self, number: int, *, stale: bool) -> None:
        names, refused = self._judged(number)
        ids = self._complete(number).column("message_id")
        called: Sequence[str] = ids.to_pylist() if refused else ()
        table, running = self._table, self._running
        self.state.totals["accepted"] += table.num_rows
        stale |= self.expected.settled(number, table)
        if table.num_rows > len([name for name in called if name in refused]):
            self.isolation.passed += 1
        if refused or running or stale or self._suspects():
            self.isolation.succeeded(place for place in running if place in self._grouped)
            for known in running.values():
                self._settle_row(known, _meant(refused.get(known.name), known))
            before = set(places_of(table).values())
            fresh = [at for at, name in enumerate(called) if name in refused and at not in before]
            for at, row in zip(fresh, rows_of(table, fresh), strict=True):
                logged = LoggedDelivery(row, (number, at))
                refusal = _meant(refused[called[at]], logged)
                if refusal is not None:
                    self.redeliveries.add(logged)
                    self._refuse(logged, refusal)
            self._unwritten = number, table
            self._ended()
            self.save()
        self._ended()
        self.release()
        self.records.forget(names)

    def _suspects(self) -> bool:
        """Whether it matters that something has gone through."""
        return bool(self._grouped) or any(row.failed is not None for row in self.redeliveries.held)

    def _ended(self) -> None:
        """Have no batch on its way any more."""
        self._number, self._table, self._running = None, empty(), {}

    def _settle_row(self, row: LoggedDelivery, refusal: Refusal | None) -> None:
        waiting = self.redeliveries
        if self._grouped.pop(row.place, None) is not None:
            if refusal is None and fingerprint(row) not in waiting.ledger.entries:
                # It was a suspect only because of the others.
                return
            waiting.add(row)
        if refusal is None:
            waiting.succeeded(row)
        else:
            self._refuse(row, refusal)

    def _refuse(self, row: LoggedDelivery, refusal: Refusal) -> None:
        self.state.totals["accepted"] -= 1
        # Whatever it did to a batch before: this one has gone through.
        row.failed = None
        self.redeliveries.failed(row, refusal.kind, Cause.of(refusal.cause), refusal.delay)

    def isolate(self, number: int, cause: Cause, fanout: int) -> None:
        """Give batch `number` up as a whole: it is replayed without its rows, which are tried in groups."""
        self._complete(number)
        waiting, table = self.redeliveries, self._table
        known = {at: self._running[place] for place, at in places_of(table).items()}
        rows = [
            known.get(at) or LoggedDelivery(row, (number, at))
            for at, row in enumerate(rows_of(table, range(table.num_rows)))
        ]
        passed = self.isolation.passed
        culprit = self.isolation.failed([row.place for row in rows], fanout)
        for row in rows:
            engine_has = row in waiting.held
            before, row.failed = row.failed, passed
            if culprit is None:
                self._grouped[row.place] = waiting.part_with(row) if engine_has else row
            else:
                self._grouped.pop(row.place, None)
                if not engine_has:
                    waiting.add(row)
                waiting.crashed(row, cause, charged=before is not None and before < passed)
        self.state.emptied, self.state.attempts = number, 0
        self.records.forget_failures()
        self._unwritten = number, table
        self._ended()
        left = f"in {len(self.isolation.groups)} groups" if culprit is None else "alone"
        logger.warning(
            "batch %d is given up (%s): its %d messages are tried again %s",
            number, cause.text, len(rows), left,
        )  # fmt: skip

    # Rows.

    def group(self, places: Sequence[Place]) -> list[LoggedDelivery]:
        """Return the rows of a group."""
        return [self._grouped[place] for place in places]

    def waiting(self) -> list[LoggedDelivery]:
        """Return all rows of which the log knows more than their batch."""
        return [*self.redeliveries.held, *self._grouped.values()]

    def names(self) -> set[str]:
        """Return what verdicts call the rows that wait."""
        return {row.name for row in self.waiting()}

    def keeps(self, place: Place) -> bool:
        """Whether a row of the batch on its way, which is in the log for the first time, keeps its message."""
        return place[0] == self._number and bool(self._table.column("_kept")[place[1]].as_py())

    def release(self) -> None:
        """Have the broker let go of the messages of all rows that are done with."""
        held = {row.place for row in self.waiting()}
        if self._number is not None:
            held |= {(self._number, at) for at in range(self._table.num_rows)}
        self.originals.accept_all_but(held)

    # Writing.

    def save(self) -> None:
        """Publish what is known now."""
        state, waiting = self.state, self.redeliveries
        rows = self.waiting()
        self.expected.waiting(rows)
        (number, table), self._unwritten = self._unwritten, (0, empty())
        begun = sorted(row.place[1] for row in rows if row.place[0] == number)
        newest = max(number, self._number or 0, state.settled)
        state.buried.update(waiting.buried)
        waiting.buried.clear()
        for place in [each for each in state.buried if each[0] < newest - KEPT]:
            del state.buried[place]
        told = state_of(state, rows, waiting, self.isolation, self._clock)
        self._states.publish(told, number, waiting_rows(table, number, begun) if begun else None)
        waiting.changed = False


def _meant(refusals: Iterable[Refusal] | None, row: LoggedDelivery) -> Refusal | None:
    count = int(row.row["delivery_count"]) - 1 if row.record is None else row.record.count
    return mildest(each for each in refusals or () if each.count == count + 1)

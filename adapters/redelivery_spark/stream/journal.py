"""Write-ahead log of one query: the effect of a committed batch on its rows, and the order of all writes."""

from __future__ import annotations

import json
import logging
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from redelivery.core.delivery import Cause
from redelivery.core.ledger_entry import fingerprint
from redelivery.errors import ConfigurationError
from redelivery_spark.executors.crumbs import CRUMBS, sweep
from redelivery_spark.stream.engine_driver import LoggedDelivery, StoredRow, fact_of, record_of
from redelivery_spark.stream.slicing import marked, passed_of, split
from redelivery_spark.wal import segment_files
from redelivery_spark.wal.checked_file import FileMissing
from redelivery_spark.wal.lane import REDELIVERIES
from redelivery_spark.wal.places import parts_of, place
from redelivery_spark.wal.records import DIED, FAILURES, VERDICTS, Records, batch_of
from redelivery_spark.wal.segment_files import MOST_BYTES, MOST_ROWS, SegmentFacts, facts_of
from redelivery_spark.wal.wal_state import FOLDER as STATES
from redelivery_spark.wal.wal_state import ROWS, GivenUpBatch, State, States

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from redelivery.clock import Clock
    from redelivery_spark.stream.engine_driver import EngineDriver
    from redelivery_spark.stream.lanes import Lanes
    from redelivery_spark.wal.lane import Segment, Vector
    from redelivery_spark.wal.places import Place
    from redelivery_spark.wal.records import Refusal
    from redelivery_spark.wal.wal_store import WalStore

__all__ = ["FOLDERS", "Journal", "redelivered_table", "rows_in", "waiting_table"]


# ---- Stored rows -----------------------------------------------------------------------------------------
# Conversion of rows between the log's files and the engine: from segments, and into the lane of redeliveries.


def rows_in(table: pa.Table, lane: int, tag: int, number: int, rows: Iterable[int]) -> list[StoredRow]:
    """Return some rows of a segment; number 0: of a file of waiting rows, which has the form of lane 0."""
    wanted = list(rows)
    facts = facts_of(table.schema)
    wires: list[str] = [json.dumps(dict(wire), sort_keys=True) for wire in facts.wires]
    some = table.take(pa.array(wanted, pa.int64()))
    heads, bodies = some.column("head").to_pylist(), some.column("body").to_pylist()
    if lane != REDELIVERIES:
        return [
            StoredRow(place(lane, tag, number, row), head, body, wires[0], facts.at)
            for row, head, body in zip(wanted, heads, bodies, strict=True)
        ]
    origins: list[Place] = some.column("origin").to_pylist()
    numbers: list[int] = some.column("wire").to_pylist()
    arrived: list[float] = some.column("arrived").to_pylist()
    counts: list[int] = some.column("count").to_pylist()
    return [
        StoredRow(origins[at], heads[at], bodies[at], wires[numbers[at]], arrived[at], counts[at])
        for at in range(len(wanted))
    ]


def redelivered_table(
    rows: Sequence[tuple[StoredRow, int]], *, at: float, log: str, alone: bool = False, group: str = ""
) -> pa.Table:
    """Return rows as a segment of lane 0, each with the count of this delivery. `group`: see `GivenUpBatch`."""
    wires: dict[str, int] = {}
    numbers = [wires.setdefault(row.wire, len(wires)) for row, _ in rows]
    return segment_files.redelivered_table(
        [row.head for row, _ in rows],
        [row.body for row, _ in rows],
        [row.place for row, _ in rows],
        [count for _, count in rows],
        numbers,
        [row.arrived for row, _ in rows],
        SegmentFacts(at, log, tuple(map(json.loads, wires)), alone=alone, connection=group),
    )


def waiting_table(rows: Sequence[LoggedDelivery], *, at: float, log: str) -> pa.Table:
    """Return rows that begin to wait as a file of waiting rows."""
    return redelivered_table([(each.row, each.row.count) for each in rows], at=at, log=log)


# ---- Journal ---------------------------------------------------------------------------------------------

logger = logging.getLogger("redelivery.spark")
GROUPS = 8
"""Number of groups into which the rows of a failed batch are split at least: a group is one segment."""
FOLDERS = (STATES, ROWS, VERDICTS, FAILURES, CRUMBS)
"""Folders of the log; each lane has one more."""


class Journal:
    """Rows and batches of one log. One thread. Its process owns the log: it has published the newest state."""

    def __init__(
        self,
        store: WalStore,
        tag: int,
        lanes: Lanes,
        redeliveries: Callable[[str], EngineDriver],
        clock: Clock,
    ) -> None:
        self._store = store
        self.tag = tag
        self.lanes = lanes
        self._states = States(store)
        self.records = Records(store)
        self.state = self._states.load() or State(log=uuid.uuid4().hex)
        self.state.void = lanes.void_behind(self.state.settled, self.state.void)
        # From here on the log belongs to this start.
        self._states.publish(self.state, None, ())
        lanes.go_on_from(self.state.settled)
        # Settled segments that stay for duplicates do not count as ahead: they could reach the limit and stop reading.
        lanes.settle(self.state.settled, self.state.void)
        # From here on an older start can append no row that this one has redelivered.
        lanes.redeliveries.publish(redelivered_table((), at=clock.time(), log=self.state.log), first=True)
        self._make = redeliveries
        self._clock = clock
        self.redeliveries: EngineDriver
        # Rows in lane 0 that are not settled: the number of each one's segment, by the row's first place in the log.
        self._out: dict[Place, int] = {}
        # Rows whose bytes are in a file of waiting rows.
        self._kept: set[Place] = set()
        self._resumed = False

    @property
    def start(self) -> str:
        """Name of this start in the log."""
        return self._states.start

    def check(self) -> None:
        """Raise LogTaken if another start has taken the log."""
        self._states.check()

    # A restart.

    def resume(self) -> None:
        """Read the rows of the log: those that wait, and those that are in lane 0 already."""
        if self._resumed:
            return
        self._resumed = True
        self.redeliveries = self._make(self.state.log)
        for segment in self.lanes.redeliveries.after(self._done_with()):
            if segment.rows:
                self._out |= dict.fromkeys(self._origins(segment.number), segment.number)
        facts = {fact.place: fact for fact in self.state.facts}
        waiting: list[LoggedDelivery] = []
        for table in self._states.rows():
            for stored in rows_in(table, REDELIVERIES, self.tag, 0, range(table.num_rows)):
                fact = facts.get(stored.place)
                if fact is None:
                    continue
                row, out = LoggedDelivery(stored), stored.place in self._out
                row.record, row.delay, row.passed = record_of(fact, self._clock), fact.delay, fact.passed
                if fact.entry.count or fact.entry.suspect:
                    # A row that is in lane 0 already needs no other batch of its own.
                    entry = replace(fact.entry, suspect=fact.entry.suspect and not out)
                    self.redeliveries.ledger.entries[fingerprint(row)] = entry
                self._kept.add(row.place)
                if out:
                    row.record.due = None
                    self.redeliveries.add(row)
                else:
                    waiting.append(row)
        self.redeliveries.restore(waiting)

    def _done_with(self) -> int:
        """Return the last segment of lane 0 that has no unsettled rows: settled, or the only row of a split batch.

        The rows of any other batch that is split are unsettled until its groups replace it.
        """
        given_up = self.state.given_up
        end = self.state.settled if given_up is None or given_up.groups else given_up.end
        return end.get(REDELIVERIES, 0)

    def _origins(self, number: int) -> list[Place]:
        origins: list[Place] = self._read(REDELIVERIES, number).column("origin").to_pylist()
        return origins

    def _read(self, lane: int, number: int) -> pa.Table:
        """Return the rows of a segment. Raises LogTaken if the segment is gone because another start has settled it."""
        try:
            return self.lanes[lane].read(number)
        except FileMissing:
            self.check()
            raise

    # A batch.

    def settle(self, upto: Vector) -> None:
        """Settle all rows up to an offset: Spark has committed it.

        Raises:
            ConfigurationError: The log and the checkpoint do not belong together.
        """
        state = self.state
        # Before the rows are there: each start with a wrong checkpoint would send their dead letters again.
        self._check(upto)
        self.resume()
        if upto == state.settled:
            return
        names, refused = self.records.settled_by(state.settled, upto)
        given_up = state.given_up is not None and state.given_up.end == upto
        if given_up:
            # No row of it was handed out since it was split.
            refused = {}
        rows = sum(segment.rows for _, segment in self.lanes.between(state.settled, upto))
        if rows > len(refused) and not given_up:
            state.passed += 1
            state.totals["accepted"] += rows - len(refused)
        self._settle_redelivered(upto, refused)
        self._settle_fresh(refused)
        state.settled, state.given_up = dict(upto), None if given_up else state.given_up
        state.void = state.void if state.void > upto.get(REDELIVERIES, 0) else 0
        # Saved each time: any start then knows that a later verdict of an abandoned task of this batch is late.
        self.save()
        self.records.forget(names)
        self.records.forget_failures()
        if names:
            sweep(self._store, max(map(batch_of, names)))
        self.lanes.settle(upto, state.void)

    def _check(self, upto: Vector) -> None:
        settled = self.state.settled
        if any(upto.get(lane, 0) < number for lane, number in settled.items()):
            raise ConfigurationError(
                f"walDir: the write-ahead log is settled up to {settled}, and the checkpoint only up to {upto}; the "
                "checkpoint is older than the log, or another query's, or was written with "
                "asyncProgressTrackingEnabled, which is not supported",
                option="walDir",
            )

    def _settle_redelivered(self, upto: Vector, refused: dict[Place, Refusal]) -> None:
        """Settle the rows that the batch had from lane 0."""
        lane = self.lanes.redeliveries
        for segment in lane.after(self.state.settled.get(REDELIVERIES, 0), upto.get(REDELIVERIES, 0)):
            for at, origin in enumerate(self._origins(segment.number)):
                if self._out.get(origin) != segment.number:
                    # Its batch was split: the row is in a later segment.
                    continue
                del self._out[origin]
                refusal = refused.pop(place(REDELIVERIES, self.tag, segment.number, at), None)
                row = self.redeliveries.held.get(origin)
                if row is None and refusal is not None:
                    table = self._read(REDELIVERIES, segment.number)
                    row = LoggedDelivery(rows_in(table, REDELIVERIES, self.tag, segment.number, [at])[0])
                    self.redeliveries.add(row)
                if row is not None:
                    self._settle_row(row, refusal)

    def _settle_fresh(self, refused: dict[Place, Refusal]) -> None:
        """Park the rows that were refused at their first delivery."""
        by_segment: dict[tuple[int, int], dict[int, Refusal]] = {}
        for at, refusal in refused.items():
            lane, _, number, row_number = parts_of(at)
            by_segment.setdefault((lane, number), {})[row_number] = refusal
        for (lane, number), some in sorted(by_segment.items()):
            if lane == REDELIVERIES:
                continue
            table = self._read(lane, number)
            rows = rows_in(table, lane, self.tag, number, some)
            for stored, refusal in zip(rows, some.values(), strict=True):
                row = LoggedDelivery(stored)
                self.redeliveries.add(row)
                self._settle_row(row, refusal)

    def _settle_row(self, row: LoggedDelivery, refusal: Refusal | None) -> None:
        if refusal is None:
            self.redeliveries.succeeded(row)
        else:
            row.passed = None
            cause = Cause.of(refusal.cause, refusal.dead_letter)
            self.redeliveries.failed(row, refusal.kind, cause, refusal.delay)

    # Redelivery of rows.

    def redeliver(self) -> None:
        """Publish due rows in lane 0; each row that has killed a process in a segment of its own."""
        redeliveries = self.redeliveries
        while due := redeliveries.take(MOST_ROWS, MOST_BYTES):
            self._publish(due, alone=False)
        while redeliveries.suspects and (suspect := redeliveries.take_alone()) is not None:
            self._publish([suspect], alone=True)

    def _publish(self, rows: Sequence[LoggedDelivery], *, alone: bool) -> None:
        group = ""
        if alone:
            passed = rows[0].passed
            group = marked(self.state.passed if passed is None else passed)
        self._again([(row.row, row.count) for row in rows], group=group)

    def _again(self, rows: Sequence[tuple[StoredRow, int]], *, group: str) -> None:
        """Publish rows in lane 0, each with the count of this delivery; `group`: mark of a batch that has only them."""
        table = redelivered_table(
            rows, at=self._clock.time(), log=self.state.log, alone=bool(group), group=group
        )
        segment = self.lanes.redeliveries.publish(table)
        # The number of a removed segment is free again, and a process that stood still gets it: no start reads it then.
        self.check()
        self._out |= dict.fromkeys([row.place for row, _ in rows], segment.number)

    # Splitting of a batch.

    def give_up(self, start: Vector, end: Vector, cause: Cause) -> None:
        """Replay a batch without its rows: they are redelivered in groups, each of which is a batch.

        A row that was a batch alone is charged if another batch has succeeded since: else it need not be the cause.
        """
        state = self.state
        segments = [each for each in self.lanes.batch(start, end) if each[1].rows]
        number = sum(segment.rows for _, segment in segments)
        mark = segments[0][1].connection if segments and segments[0][1].alone else ""
        groups = max(min(GROUPS, number), -(-number // MOST_ROWS))
        state.given_up = GivenUpBatch(dict(end), groups, state.passed)
        logger.warning(
            "a batch of %d messages failed repeatedly (%s); its messages are tried again in %d groups",
            number,
            cause.text,
            groups,
        )
        if number == 1 and mark:
            state.given_up = replace(state.given_up, groups=0)
            self._charge(*segments[0], cause, charged=state.passed > passed_of(mark))
        self.save()
        self.records.forget_failures()

    def _charge(self, lane: int, segment: Segment, cause: Cause, *, charged: bool) -> None:
        stored = rows_in(self._read(lane, segment.number), lane, self.tag, segment.number, [0])[0]
        self._out.pop(stored.place, None)
        row = self.redeliveries.held.get(stored.place)
        if row is None:
            row = LoggedDelivery(stored)
            self.redeliveries.add(row)
        row.passed = self.state.passed
        if charged:
            self.redeliveries.failed(row, DIED, cause, 0.0)
        else:
            self.redeliveries.spared(row, cause)

    def regroup(self, start: Vector) -> None:
        """Publish those groups of the split batch that are not published yet."""
        given_up = self.state.given_up
        if given_up is None:
            return
        there = {segment.connection for segment in self.lanes.redeliveries.after(self._done_with())}
        missing = [at for at in range(given_up.groups) if self._mark(at) not in there]
        if not missing:
            return
        rows: list[StoredRow] = []
        for lane, segment in self.lanes.batch(start, given_up.end):
            table = self._read(lane, segment.number)
            rows += rows_in(table, lane, self.tag, segment.number, range(segment.rows))
        groups = split(rows, given_up.groups)
        for at in missing:
            self._again([(row, row.count) for row in groups[at]], group=self._mark(at))

    def _mark(self, at: int) -> str:
        """Return the mark of a group of the split batch."""
        given_up = self.state.given_up
        assert given_up is not None, "it has groups"
        return marked(given_up.passed, at, json.dumps(given_up.end, sort_keys=True))

    # Writing.

    def save(self) -> None:
        """Publish the current state."""
        state, redeliveries = self.state, self.redeliveries
        rows = list(redeliveries.held.values())
        # Their bytes are in memory: nothing has to be read to write them anew.
        again = self._states.scattered({row.place for row in rows})
        new = [row for row in rows if row.place not in self._kept or row.place in again]
        known = replace(
            state,
            totals=redeliveries.added_to(state.totals),
            facts=[fact_of(row, redeliveries.ledger, self._clock) for row in rows],
        )
        table = waiting_table(new, at=self._clock.time(), log=state.log) if new else None
        self._states.publish(known, table, [row.place for row in new])
        self._kept = {row.place for row in rows}
        redeliveries.changed = False

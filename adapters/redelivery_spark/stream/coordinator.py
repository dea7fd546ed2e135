"""One query's use of one write-ahead log: settles the batches that Spark has committed, and composes the next one.

docs/spark/how-it-works.md and docs/spark/wal.md describe its sequences.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from redelivery.core.delivery import Cause
from redelivery.errors import ConfigurationError, RedeliveryError, TransportError
from redelivery_spark.stream.lanes import LeftLanes, composed
from redelivery_spark.stream.trigger_size import LAST_CALL, LONGEST_DRAIN, AvailableNow, TriggerSize
from redelivery_spark.wal.lane import REDELIVERIES

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery.clock import Clock
    from redelivery_spark.options.source_options import SourceOptions
    from redelivery_spark.stream.journal import Journal
    from redelivery_spark.stream.lanes import Composed
    from redelivery_spark.stream.readers import Readers
    from redelivery_spark.wal.lane import Segment, Vector

__all__ = ["Coordinator"]

logger = logging.getLogger("redelivery.spark")
# Bytes of the bodies of rows that wait for a redelivery: they are in memory.
MOST_WAITING = 256 << 20
# Seconds for which a call of Spark waits for a first row. The runner of a killed Spark lives for as long.
PATIENCE = 0.5
# Seconds that a batch waits for rows that are about to be published.
MOMENT = 0.03
# Rows from which on a batch does not wait for those.
MANY = 5_000
# Seconds of one turn of the wait: in between, rows become due.
TURN = 0.1
# Seconds to wait for the broker's answers to dead letters: before a new batch, and before a repeated one or the end.
# Answers are milliseconds away, and a batch can take minutes: a query that dies meanwhile sends each dead letter again
# whose answer is not in the log. A repeated batch has failed or died, and may do so at each start.
ANSWERS, LAST_ANSWERS = 0.1, 1.0


class Coordinator:
    """Coordinator of one query. All methods are called on one thread, that of Spark's stream runner."""

    def __init__(
        self,
        options: SourceOptions,
        journal: Journal,
        readers: Readers,
        clock: Clock,
        most_parked: int,
        leave: Callable[[], None],
    ) -> None:
        """`most_parked`: rows that may wait; `leave`: closes the connection and unlocks the log."""
        self._options = options
        self._journal = journal
        self._readers = readers
        self._clock = clock
        self._most_parked = most_parked
        self._leave = leave
        self._parent = os.getppid()
        self._left = LeftLanes(journal.lanes, options.readers, clock)
        self._size = TriggerSize(clock, options.least_rows, options.trigger_delay)
        self._available: AvailableNow | None = None
        # Time since which all messages that were there have been taken.
        self._exhausted: float | None = None
        # End of the batch that Spark was given last.
        self._given: Vector | None = None
        # True if the last batch had a segment that must be alone.
        self._alone = False
        # True while so many rows wait that batches get no new messages.
        self._full = False
        self._begun = False
        # True between two calls of Spark: the state is whole, and can be saved.
        self._at_rest = False

    @property
    def log(self) -> str:
        """Identity of the write-ahead log."""
        return self._journal.state.log

    def begin(self, vector: Vector) -> None:
        """Continue from Spark's newest offset, once; readers then know which segment numbers are used."""
        if not self._begun:
            self._begun = True
            self._journal.lanes.go_on_from(vector)
            self._journal.resume()
            self._readers.start()

    # Calls of Spark.

    def latest(self, start: Vector, most: int) -> Vector:
        """Settle all rows up to `start`, and return the end of the next batch, or `start` if there is none.

        Raises:
            RedeliveryError: The query cannot continue.
        """
        self._at_rest = False
        self._journal.settle(start)
        self.begin(start)
        self._readers.settled()
        self._size.begin()
        self._readers.want(wanted=True)
        try:
            batch = self._next(start, most)
        except RedeliveryError:
            # The state is whole after each turn, and after what raises such an error in one.
            self._at_rest = True
            raise
        finally:
            self._readers.want(wanted=False)
        if batch is not None:
            self._given, self._alone = batch.end, batch.alone
            self._size.gave(batch.rows)
            self._record_answers(ANSWERS)
        self._at_rest = True
        return start if batch is None else batch.end

    def available_now(self) -> None:
        """End the query once the messages that are there now have been processed."""
        self._available = AvailableNow(self._clock)
        self._readers.until_exhausted(self._available)

    def segments(self, start: Vector, end: Vector) -> list[tuple[int, Segment]]:
        """Return the segments of a batch. A batch that was not given out here is one that Spark replays."""
        self._at_rest = False
        self.begin(end)
        if self._given != end:
            self._given = end
            self._replay(start, end)
            self._record_answers(LAST_ANSWERS)
        given_up = self._journal.state.given_up
        is_split = given_up is not None and given_up.end == end
        if is_split:
            self._journal.regroup(start)
        self._at_rest = True
        return [] if is_split else self._journal.lanes.batch(start, end)

    def check_new(self) -> None:
        """Refuse a log with settled rows for a query with a new checkpoint. Raises ConfigurationError."""
        if self._journal.state.settled:
            raise ConfigurationError(
                "walDir: its log has batches of another checkpoint, and this query has a new checkpoint; use the old "
                "checkpoint, or a new walDir (without the messages that wait in this one)",
                option="walDir",
            )

    def close(self) -> None:
        """Stop reading, close the connection, unlock the log. The broker takes back messages that were not accepted."""
        try:
            if self._at_rest:
                self._record_answers(LAST_ANSWERS)
        except Exception as error:  # noqa: BLE001 - an object store has its own; Spark would report none but this one
            logger.info("the broker's last answers to dead letters are not in the log (%s)", error)
        finally:
            self._readers.stop()
            self._leave()

    def report(self) -> dict[str, object] | None:
        """Return the source's part of a query's progress, once it has begun; docs/spark/monitor.md lists its keys."""
        if not self._begun:
            return None
        journal, redeliveries = self._journal, self._journal.redeliveries
        totals = redeliveries.added_to(journal.state.totals)
        due = redeliveries.next_due()
        settled, counts = journal.state.settled, self._readers.counts
        ahead = journal.lanes.waiting(settled)
        return {
            "log": self.log,
            "ahead": {str(lane): sum(each.rows for each in found) for lane, found in ahead.items()},
            "aheadBytes": journal.lanes.ahead,
            "waiting": len(redeliveries.held),
            "nextDue": None if due is None else round(due, 3),
            "full": self._full,
            "connected": self._readers.connected,
            "accepted": totals["accepted"],
            "copies": counts["copies"],
            "refused": counts["refused"],
            "setAside": counts["set_aside"],
            "redelivered": totals["redelivered"],
            "deferred": totals["deferred"],
            "discarded": totals["discarded"],
            "deadLettered": totals["poisoned"],
        }

    # Composing a new batch.

    def _next(self, start: Vector, most: int) -> Composed | None:
        """Wait for a batch; None: there is none within `PATIENCE`, or, with AvailableNow, none any more."""
        began = self._clock.monotonic()
        while True:
            seen = self._readers.published()
            self._turn()
            pending = self._readers.pending()
            batch = self._composed(start, most)
            if batch.rows and self._enough(batch, began, pending=pending):
                return batch
            if not batch.rows and self._finished(began):
                return None
            self._readers.wait(seen, self._patience(batch, pending=pending))

    def _turn(self) -> None:
        """Handle the broker's answers to dead letters, publish due rows, and read what an older start has appended."""
        journal = self._journal
        for lane, connection in self._left.look():
            self._readers.ended(lane, connection)
        journal.redeliveries.pump()
        journal.redeliver()
        if journal.redeliveries.changed:
            journal.save()

    def _record_answers(self, patience: float) -> None:
        """Write into the log which dead letters the broker has confirmed."""
        redeliveries = self._journal.redeliveries
        redeliveries.wait_answered(patience)
        if redeliveries.changed:
            self._journal.save()

    def _composed(self, start: Vector, most: int) -> Composed:
        waiting = dict(self._journal.lanes.waiting(start))
        if not self._has_room():
            waiting = {REDELIVERIES: waiting[REDELIVERIES]}
        return composed(start, waiting, most, self._options.most_bytes, alone_first=not self._alone)

    def _enough(self, batch: Composed, began: float, *, pending: bool) -> bool:
        if batch.complete:
            return True
        if self._readers.full():
            # The reader waits until this batch is settled.
            return True
        if pending and batch.rows < MANY and self._clock.monotonic() - began < MOMENT:
            return False
        return self._size.enough(batch.rows)

    def _patience(self, batch: Composed, *, pending: bool) -> float:
        left = TURN
        if batch.rows:
            left = min(left, MOMENT if pending and batch.rows < MANY else self._size.left())
        due = self._journal.redeliveries.next_due()
        if due is not None:
            left = min(left, due)
        return max(left, 0.001)

    def _has_room(self) -> bool:
        """True if new messages may go into a batch: there they can fail, and have to wait."""
        rows = self._journal.redeliveries.held.values()
        parked = self._journal.redeliveries.engine.load.parked
        size = sum(len(row.body) for row in rows)
        if parked < self._most_parked and size < MOST_WAITING:
            self._full = False
        elif not self._full:
            self._full = True
            logger.warning(
                "%d messages of %d bytes wait for a redelivery; no new messages are processed until fewer than %d wait "
                "(redelivery.maxParked), of less than %d bytes",
                parked,
                size,
                self._most_parked,
                MOST_WAITING,
            )
        return not self._full

    def _finished(self, began: float) -> bool:
        """True if there is no batch now; with AvailableNow: if there will be none any more."""
        now, available = self._clock.monotonic(), self._available
        if available is None:
            return now - began >= PATIENCE
        if os.getppid() != self._parent:
            # Spark was killed and needs no answer.
            return True
        if now - began >= LAST_CALL:
            if not self._readers.connected:
                raise TransportError(f"AvailableNow: there has been no connection for {LAST_CALL:g} s")
            return True
        redeliveries = self._journal.redeliveries
        if not available.exhausted or self._readers.pending():
            self._exhausted = None
            return False
        if self._exhausted is None:
            self._exhausted = now
        if redeliveries.engine.load.unconfirmed or redeliveries.suspects:
            return False
        due = redeliveries.next_due()
        # Counted from the end of the intake, not from now: a message that fails repeatedly would keep the query
        # running.
        return due is None or now + due > self._exhausted + LONGEST_DRAIN

    # Replaying a batch.

    def _replay(self, start: Vector, end: Vector) -> None:
        """Handle a batch that Spark runs again. It has the same rows as before, unless it is to be split."""
        journal, options = self._journal, self._options
        given_up = journal.state.given_up
        if options.isolate != "split" or (given_up is not None and given_up.end == end):
            return
        failures = journal.records.failures()
        if len(failures) >= options.isolate_after:
            journal.give_up(start, end, Cause.of(failures[-1]))

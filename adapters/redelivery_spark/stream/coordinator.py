"""One query's side of one log: settles what Spark has committed, and says what the next batch is.

Its walks are in docs/spark/design.md.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from redelivery.core.delivery import Cause
from redelivery.errors import ConfigurationError, TransportError
from redelivery_spark.stream.available_now import LAST_CALL, LONGEST_DRAIN, AvailableNow
from redelivery_spark.stream.batch_composer import composed
from redelivery_spark.stream.left_lanes import LeftLanes
from redelivery_spark.stream.trigger_size import TriggerSize
from redelivery_spark.wal.lane import REDELIVERIES

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery.clock import Clock
    from redelivery_spark.options.stream_options import SourceOptions
    from redelivery_spark.stream.batch_composer import Composed
    from redelivery_spark.stream.journal import Journal
    from redelivery_spark.stream.readers import Readers
    from redelivery_spark.wal.lane import Segment, Vector

__all__ = ["Coordinator"]

logger = logging.getLogger("redelivery.spark")
# Bytes of the bodies that wait: they are in memory.
MOST_WAITING = 256 << 20
# Seconds that Spark's question waits for a first row. A runner whose Spark was killed lives for as long.
PATIENCE = 0.5
# Seconds that a batch waits for what is about to be published.
MOMENT = 0.03
# Rows of a batch that does not wait for it.
MANY = 5_000
# Seconds of one turn of the wait: rows become due.
TURN = 0.1


class Coordinator:
    """All methods are called on one thread, Spark's own."""

    def __init__(
        self,
        options: SourceOptions,
        journal: Journal,
        readers: Readers,
        clock: Clock,
        most_parked: int,
        leave: Callable[[], None],
    ) -> None:
        """`most_parked`: rows that may wait; `leave`: closes the connection, and gives the log back."""
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
        # Since when all has been taken that was there.
        self._exhausted: float | None = None
        # Where the batch ends that Spark was given last.
        self._given: Vector | None = None
        # Whether the last batch was one that had to be alone.
        self._alone = False
        # Whether so much waits that nothing fresh goes into a batch.
        self._full = False
        self._begun = False

    @property
    def log(self) -> str:
        """The identity of the log."""
        return self._journal.state.log

    def begin(self, vector: Vector) -> None:
        """Go on from an offset of Spark's, the newest that there is: then readers know which numbers are used."""
        if not self._begun:
            self._begun = True
            self._journal.lanes.go_on_from(vector)
            self._journal.resume()
            self._readers.start()

    # Spark asks.

    def latest(self, start: Vector, most: int) -> Vector:
        """Settle all up to `start`, and return where the next batch ends, or `start` if there is none.

        Raises:
            RedeliveryError: the query cannot go on.
        """
        self._journal.settle(start)
        self.begin(start)
        self._readers.settled()
        self._size.begin()
        self._readers.want(wanted=True)
        try:
            batch = self._next(start, most)
        finally:
            self._readers.want(wanted=False)
        if batch is None:
            return start
        self._given, self._alone = batch.end, batch.alone
        self._size.gave(batch.rows)
        return batch.end

    def available_now(self) -> None:
        """Learn that the query is to end when what is there now has been processed."""
        self._available = AvailableNow(self._clock)
        self._readers.until_exhausted(self._available)

    def segments(self, start: Vector, end: Vector) -> list[tuple[int, Segment]]:
        """Return the segments of a batch. Spark asks for one that it was not given here when it replays it."""
        self.begin(end)
        if self._given != end:
            self._given = end
            self._replay(start, end)
        given_up = self._journal.state.given_up
        if given_up is not None and given_up.end == end:
            self._journal.regroup(start)
            return []
        return self._journal.lanes.batch(start, end)

    def check_new(self) -> None:
        """Refuse a log that has gone on, for a query that begins. Raises ConfigurationError."""
        if self._journal.state.settled:
            raise ConfigurationError(
                f"walDir holds the log of a query that has come to {self._journal.state.settled}, and this query "
                "begins with a new checkpoint: give the old one, or a new walDir",
                option="walDir",
            )

    def close(self) -> None:
        """Leave: the broker takes back what has not been accepted."""
        self._readers.stop()
        self._leave()

    def report(self) -> dict[str, object] | None:
        """Return what a query's progress shows of the source, once it has begun. docs/spark/stream.md has each key."""
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

    # A new batch.

    def _next(self, start: Vector, most: int) -> Composed | None:
        """Wait for a batch; None: there is none within a moment, or, with AvailableNow, any more."""
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
        """Take the answers to dead letters, publish what is due, and see what an older start has appended."""
        journal = self._journal
        for lane, connection in self._left.look():
            self._readers.ended(lane, connection)
        journal.redeliveries.pump()
        journal.redeliver()
        if journal.redeliveries.changed:
            journal.save()

    def _composed(self, start: Vector, most: int) -> Composed:
        waiting = dict(self._journal.lanes.waiting(start))
        if not self._has_room():
            waiting = {REDELIVERIES: waiting[REDELIVERIES]}
        return composed(start, waiting, most, self._options.most_bytes, alone_first=not self._alone)

    def _enough(self, batch: Composed, began: float, *, pending: bool) -> bool:
        if batch.complete:
            return True
        if self._readers.full():
            # It waits for this batch.
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
        """Whether fresh messages may go into a batch, which may fail and have to wait."""
        rows = self._journal.redeliveries.held.values()
        parked = self._journal.redeliveries.engine.load.parked
        size = sum(len(row.body) for row in rows)
        if parked < self._most_parked and size < MOST_WAITING:
            self._full = False
        elif not self._full:
            self._full = True
            logger.warning(
                "%d messages of %d bytes wait for a redelivery: nothing fresh is processed until there are fewer than "
                "%d (redelivery.maxParked), of less than %d bytes",
                parked,
                size,
                self._most_parked,
                MOST_WAITING,
            )
        return not self._full

    def _finished(self, began: float) -> bool:
        """Whether to say that there is no batch now; with AvailableNow: that there is none any more."""
        now, available = self._clock.monotonic(), self._available
        if available is None:
            return now - began >= PATIENCE
        if os.getppid() != self._parent:
            # Spark has been killed, and needs no answer.
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
        # Not from now on: a message that fails again and again would keep the query for ever.
        return due is None or now + due > self._exhausted + LONGEST_DRAIN

    # A batch again.

    def _replay(self, start: Vector, end: Vector) -> None:
        """Learn that Spark tries a batch once more. It has the rows that it had, unless it is to be split."""
        journal, options = self._journal, self._options
        given_up = journal.state.given_up
        if options.isolate != "split" or (given_up is not None and given_up.end == end):
            return
        failures = journal.records.failures()
        if len(failures) >= options.isolate_after:
            journal.give_up(start, end, Cause.of(failures[-1]))

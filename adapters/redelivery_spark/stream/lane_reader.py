"""Reader of one lane: takes messages ahead of Spark, publishes them as segments, and only then accepts them."""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING

from redelivery.clock import pass_time
from redelivery_spark.stream.trigger_size import GAP
from redelivery_spark.wal.lane import NumberTaken
from redelivery_spark.wal.segment_files import MOST_BYTES, MOST_ROWS, SegmentFacts, stored_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery.core.delivery import Delivery
    from redelivery_spark.stream.rows_in_doubt import RowsInDoubt
    from redelivery_spark.stream.source_connection import SourceConnection
    from redelivery_spark.stream.trigger_size import AvailableNow
    from redelivery_spark.wal.lane import Lane

__all__ = ["LaneReader"]

logger = logging.getLogger("redelivery.spark")
# Seconds that the first row of a segment waits for others: while Spark is busy, and while it waits for rows.
LINGER, MOMENT = 1.0, 0.005
# Seconds, in place of LINGER, on a broker that stops sending until some are accepted: other consumers may hold most.
SHORT_LINGER = 0.05
# Segments in a window: while one is written, the broker sends the others.
PARTS = 4
# Seconds between two checks for room.
FULL = 0.02
# Seconds between two checks whether another start has taken the log, and between two for what an older one appended.
CHECK = 1.0
LOOK = 5.0


class LaneReader:
    """One reader: one connection, one lane. Call `step` in a loop, on one thread."""

    def __init__(
        self,
        source: SourceConnection,
        lane: Lane,
        doubt: RowsInDoubt,
        log: str,
        most_ahead: int,
        check: Callable[[], None],
        name: str | None = None,
    ) -> None:
        """`most_ahead`: bytes that may be published and not settled; `check` raises if another start has the log.

        `name`: prefix of its connections' names, before their numbers; None: a new one.
        """
        self.lane = lane
        self.copies = 0
        self.refused = 0
        self.full = False
        self.wanted = False
        """True while Spark waits for rows."""
        self.available: AvailableNow | None = None
        self._source = source
        self._doubt = doubt
        self._log = log
        self._most_ahead = most_ahead
        self._check = check
        self._clock = source.clock
        self._name = name or uuid.uuid4().hex[:12]
        self._epoch = -1
        self._since = 0.0
        self._arrived = 0
        self._wire: dict[str, str] = {}
        # Limits of a segment.
        self._rows, self._bytes, self._linger = MOST_ROWS, MOST_BYTES, LINGER
        # Messages that are not published yet.
        self._taken: list[Delivery] = []
        self._size = 0
        self._first = 0.0
        self._last = 0.0
        self._checked = self._looked = 0.0
        # State of the doubt when all of these were compared with it.
        self._compared = 0

    @property
    def pending(self) -> bool:
        """True if a message is taken or ready, and not published yet."""
        return bool(self._taken) or (not (self.full or self._ends) and self._source.bulk.ready() > 0)

    @property
    def _ends(self) -> bool:
        """True if all messages have been taken that are to be."""
        return self.available is not None and self.available.exhausted

    def step(self, patience: float) -> bool:
        """Take messages, waiting up to `patience` seconds for them; return True if a segment was published."""
        self.refused += self._source.refuse_odd()
        self._look()
        self.full = self.lane.ahead >= self._most_ahead
        if not self._taken and (self.full or self._ends):
            # The window fills, and the broker stops sending.
            pass_time(self._clock, min(FULL, patience))
            return False
        if not self._ends:
            self._take(patience)
        if not self._taken or not self._complete():
            return False
        self._publish()
        return True

    def _look(self) -> None:
        now = self._clock.monotonic()
        if now - self._checked >= CHECK:
            self._checked = now
            self._check()
        if now - self._looked >= LOOK:
            self._looked = now
            if self.lane.look():
                self._doubt.published()
        self._doubt.look(self._arrived, idle=False)

    def _is_idle(self) -> bool:
        """True if the destination is empty, when there was nothing to take."""
        quiet = self._clock.monotonic() - max(self._since, self._last)
        return self._source.connected and not self._taken and quiet >= GAP

    def ended(self, lane: int, connection: str) -> None:
        """Note that a connection of another lane has ended: its messages can be redelivered to this one. Any thread."""
        self._doubt.ended(lane, connection)

    def _take(self, patience: float) -> None:
        bulk = self._source.bulk
        if self._taken:
            patience = min(patience, max(0.0, self._due() - self._clock.monotonic()))
        taken = bulk.take(self._rows - len(self._taken), self._bytes - self._size, patience)
        if bulk.epoch != self._epoch:
            self._begin(bulk.epoch)
        if taken and taken[0].epoch != self._epoch:
            # Their connection is lost: the broker redelivers them.
            taken = []
        if taken:
            self._last = self._clock.monotonic()
            self._arrived += len(taken)
        elif self._is_idle():
            # Before the end of the intake is reported: that can end this run.
            self._doubt.look(self._arrived, idle=True)
        if self.available is not None and (taken or not self._taken):
            age = self._clock.monotonic() - self._since if self._source.connected else None
            self.available.saw(taken, age)
        fresh = self._without_copies(taken)
        if fresh and not self._taken:
            self._first = self._clock.monotonic()
        self._taken += fresh
        self._size += sum([len(each.body) for each in fresh])

    def _begin(self, epoch: int) -> None:
        """Continue over a new connection: the broker redelivers messages that were not published."""
        self._epoch, self._since, self._arrived = epoch, self._clock.monotonic(), 0
        self._taken, self._size = [], 0
        self._wire = dict(self._source.wire())
        window, held = self._source.window, self._source.held
        self._rows = max(1, min(MOST_ROWS, window.messages // PARTS))
        self._bytes = MOST_BYTES if window.size is None else max(1, min(MOST_BYTES, window.size // PARTS))
        if held is not None:
            self._rows, self._linger = max(1, min(self._rows, held // 2)), SHORT_LINGER
        self._doubt.begin(self.connection, window)

    @property
    def set_aside(self) -> int:
        """Number of messages that stay on the broker, because they cannot be dead-lettered."""
        return self._source.set_aside

    @property
    def connection(self) -> str:
        """Name of the connection in the log."""
        return f"{self._name}-{self._epoch}"

    def _without_copies(self, taken: list[Delivery]) -> list[Delivery]:
        """Accept duplicates of messages in the log, and return the others. The broker had not read their acceptance."""
        copies = self._doubt.copies(taken)
        if not copies:
            return taken
        self.copies += len(copies)
        self._source.accept(copies)
        logger.info("%d duplicates of messages in the write-ahead log arrived; accepted", len(copies))
        known = set(copies)
        return [each for each in taken if each not in known]

    def _due(self) -> float:
        """Return the time at which the segment is published, whatever its size."""
        return self._first + (0.0 if self._ends else MOMENT if self.wanted else self._linger)

    def _complete(self) -> bool:
        return (
            len(self._taken) >= self._rows
            or self._size >= self._bytes
            or self._clock.monotonic() >= self._due()
        )

    def _publish(self) -> None:
        """Publish, and then accept. Raises OSError, or an object store's own error: nothing is accepted then."""
        taken = self._fresh()
        while taken and not self._appended(taken):
            taken = self._fresh()
        if not taken:
            return
        if self._clock.monotonic() - self._checked >= CHECK:
            # This process may have stood still. If another start has the log, the broker redelivers all of it there.
            self._check()
        self._taken, self._size = [], 0
        self._source.accept(taken)
        # A broker can have waited for the acceptance before it sends the next ones.
        self._last = self._clock.monotonic()
        if self.available is not None:
            self.available.accepted()
        self._doubt.published()

    def _fresh(self) -> list[Delivery]:
        """Return the messages to publish: without duplicates, and without those that will be redelivered."""
        # Messages of a lost connection are redelivered.
        taken = [each for each in self._taken if each.epoch == self._epoch]
        if self._compared != self._doubt.learned:
            taken = self._without_copies(taken)
            self._compared = self._doubt.learned
        if len(taken) < len(self._taken):
            self._taken, self._size = taken, sum([len(each.body) for each in taken])
        return taken

    def _appended(self, taken: list[Delivery]) -> bool:
        """Publish these messages; return False if another segment, maybe with some of them, has the number. Raises
        LogTaken.
        """
        facts = SegmentFacts(self._clock.time(), self._log, (self._wire,), connection=self.connection)
        # All arrived over one subscription: they are of one class.
        table = stored_table(*type(taken[0]).stored_all(taken), facts)
        try:
            self.lane.publish(table)
        except NumberTaken:
            # This process may have stood still while the broker gave its messages to a newer start, which published
            # them there. Under another number they would be in the log twice.
            self._checked = self._clock.monotonic()
            self._check()
            self.lane.take_in()
            self._doubt.published()
            return False
        return True

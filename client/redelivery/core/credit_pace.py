"""Credit by time: how many messages half a second of work is, of the consumer whose rate is looked at.

A consumer with `redelivery.credit=auto` begins with a few messages, so that several processes share a queue evenly. The
credit grows while its handlers prove fast. It shrinks where the broker can be kept from sending: where credit flows.
"""

from __future__ import annotations

from math import inf

__all__ = ["MOST_CREDIT", "CreditPace", "first_credit"]

# Messages. The default prefetch of ActiveMQ's Java client 6.1 for a queue.
MOST_CREDIT = 1000
# Messages that a consumer begins with from which the application pulls: it may need several before it settles one.
PULLED = 16
# Seconds of work that a consumer may hold: one whose handlers had to wait for messages, and one whose had not.
WAITING, BUSY = 0.5, 0.05
# Where the largest credit is no more work than this, it is taken at once.
WHOLE = 0.4
# Where handlers had to wait, so many times the credit before, or so many seconds of work, are seldom too little. On a
# busy machine slow ones wait at times, too, and what a STOMP window has grown by stays.
STEP, STEP_SECONDS = 4, 0.1
# Settled messages to look back over: so many times the credit, and no more than so many. A rate of one turn of a small
# window is that of the network.
TURNS, ENOUGH = 8, 256
# Seconds to look back over at least, before the credit grows; and after which it may shrink.
PERIOD, SHRINKS_AFTER = 0.02, 1.0


def first_credit(workers: int) -> int:
    """Return what a consumer with this many workers begins with; 0: the application pulls.

    Two for each worker, and two that are on their way.
    """
    return 2 * workers + 2 if workers else PULLED


class CreditPace:
    """The credit of one consumer, between `first` and `most`. The credit window asks it; see `CreditWindow`.

    `enough`, `period`: how many settled messages, and how many seconds, a look goes back over at least.
    """

    __slots__ = (
        "_at", "_enough", "_first", "_most", "_period", "_settled", "_shrinks", "_waits", "credit", "due_at",
        "due_by",
    )  # fmt: skip

    def __init__(
        self, first: int, most: int = MOST_CREDIT, *, enough: int = ENOUGH, period: float = PERIOD
    ) -> None:
        self._first = min(first, most)
        self._most = most
        self._enough = enough
        self._period = period
        self.restart(shrinks=False)

    def restart(self, *, shrinks: bool) -> None:
        """Begin a connection. `shrinks`: credit can be kept back there."""
        self._shrinks = shrinks
        self.credit = self._first
        # The first message begins the time: an empty queue says nothing of the handlers.
        self._at: float | None = None
        self._settled = self._waits = 0
        self.due_at: float = 1
        """`look` is due when so many messages are settled on this connection."""
        self.due_by = inf
        """Time at which it is due, however few are settled."""

    @property
    def most(self) -> int:
        """The largest credit."""
        return self._most

    def held(self, running: int) -> bool:
        """Take how many messages the application has unsettled; return whether the credit grows for it.

        An application that takes messages itself may need many before it settles the first.
        """
        if 2 * running < self.credit or self.credit >= self._most:
            return False
        self.credit = min(self._most, STEP * self.credit)
        return True

    def look(self, now: float, settled: int, waits: int, ready: int) -> bool:
        """Look at the rate since the last look; return whether the credit has changed.

        `settled`, `waits`: so far on this connection, messages, and how often a worker found none; `ready`: messages
        that are here and wait for a worker.
        """
        before = self.credit
        if self._at is None:
            self._mark(now, settled, waits)
            return False
        elapsed, done = now - self._at, settled - self._settled
        enough = done >= self._needed() and elapsed >= self._period
        if enough or elapsed >= SHRINKS_AFTER:
            rate = done / elapsed if elapsed > 0 else inf
            if enough:
                self._grow(rate, starved=(waits - self._waits) * 2 * before >= done)
            if elapsed >= SHRINKS_AFTER and self.credit == before:
                self._shrink(rate, ready)
            self._mark(now, settled, waits)
        else:
            self.due_at = self._settled + self._needed()
        return self.credit != before

    def _grow(self, rate: float, *, starved: bool) -> None:
        """Grow to what so many messages a second are worth. Less than twice as much is not worth a subscription."""
        wanted = rate * BUSY
        if starved:
            wanted = min(rate * WAITING, max(STEP * self.credit, rate * STEP_SECONDS))
        if rate * WHOLE >= self._most:
            # Several such processes then have the rate of a fixed credit.
            wanted = self._most
        wanted = int(min(self._most, wanted))
        if wanted >= 2 * self.credit or wanted == self._most:
            self.credit = max(self.credit, wanted)

    def _shrink(self, rate: float, ready: int) -> None:
        """Shrink if more is here than the workers do in half a second: with an empty queue a low rate says nothing."""
        wanted = max(self._first, int(min(self._most, rate * WAITING)))
        if self._shrinks and self.credit > 2 * wanted and ready > wanted:
            self.credit = wanted

    def _needed(self) -> int:
        return min(TURNS * self.credit, self._enough)

    def _mark(self, now: float, settled: int, waits: int) -> None:
        self._at, self._settled, self._waits = now, settled, waits
        self.due_at = settled + self._needed() if self.credit < self._most else inf
        self.due_by = now + SHRINKS_AFTER if self._shrinks and self.credit > self._first else inf

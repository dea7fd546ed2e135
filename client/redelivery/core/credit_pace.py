"""Credit by time: as many messages as a consumer handles in half a second, measured while it runs.

A consumer with `redelivery.credit=auto` starts with a few messages: several processes then share a queue evenly. The
credit grows while its handlers are fast. It shrinks only where credit flows: there the broker can be stopped.

It is bounded in bytes too: `MOST_BYTES` at the mean size of the last messages. Messages of 1 MB, after small ones that
made the credit grow, took 1.4 GB.
"""

from __future__ import annotations

from math import inf

__all__ = ["MOST_BYTES", "MOST_CREDIT", "CreditPace", "first_credit"]

# Messages. Default queue prefetch of ActiveMQ's Java client 6.1.
MOST_CREDIT = 1000
# Bytes. Messages of more than 64 KiB get less than the largest credit.
MOST_BYTES = 64 * 1024 * 1024
# Messages that the mean size is taken over: from LAST to twice as many, the older ones count half.
LAST = 16
# Messages. First credit of a consumer whose application pulls: it may need several before it settles one.
PULLED = 16
# Seconds of work that a consumer may have here: if its handlers had to wait for messages, and if they had not.
WAITING, BUSY = 0.5, 0.05
# Seconds. If the largest credit is no more work than this, it is granted at once.
WHOLE = 0.4
# If handlers had to wait, the credit grows to STEP times the credit before, or to STEP_SECONDS of work: seldom too
# little. On a busy machine slow handlers wait at times, too, and a STOMP window never shrinks.
STEP, STEP_SECONDS = 4, 0.1
# Settled messages that a measurement covers: TURNS times the credit, at most ENOUGH. The rate over one turn of a small
# window would be that of the network.
TURNS, ENOUGH = 8, 256
# Over a link so slow that a turn of the credit takes a good part of WAITING, half a second of work is not enough. There
# the credit is doubled while workers wait, if FAR_TURNS turns take FAR to FARTHEST seconds: 500 ms each way, and work.
# A queue to which messages trickle looks the same, but there a doubling changes nothing: the next one takes a rate of
# GAIN times that before the last one.
FAR, FARTHEST, FAR_TURNS, GAIN = 0.25, 3.0, 2, 1.5
# Seconds that a measurement covers at least before the credit grows; and seconds after which it may shrink.
PERIOD, SHRINKS_AFTER = 0.02, 1.0


def first_credit(workers: int) -> int:
    """Return the first credit of a consumer with this many workers; 0: the application pulls.

    Two for each worker, and two that are on their way.
    """
    return 2 * workers + 2 if workers else PULLED


class CreditPace:
    """Credit of one consumer, between `first` and `most`. `CreditWindow` asks it.

    `enough`, `period`: settled messages, and seconds, that a measurement covers at least.
    """

    __slots__ = (
        "_at", "_before", "_bytes", "_enough", "_first", "_messages", "_most", "_period", "_settled",
        "_shrinks", "_waits", "credit", "due_at", "due_by", "limit",
    )  # fmt: skip

    def __init__(
        self, first: int, most: int = MOST_CREDIT, *, enough: int = ENOUGH, period: float = PERIOD
    ) -> None:
        self._first = min(first, most)
        self._most = most
        self._enough = enough
        self._period = period
        self.limit = most
        """The largest credit for messages of the present size."""
        self._bytes = self._messages = 0
        self.restart(shrinks=False)

    def restart(self, *, shrinks: bool) -> None:
        """Start on a connection. `shrinks`: credit can be withheld there."""
        self._shrinks = shrinks
        self.credit = self._first
        # The time starts with the first message: an empty queue is no measure of the handlers.
        self._at: float | None = None
        self._settled = self._waits = 0
        # Rate before the last doubling for a slow link.
        self._before = 0.0
        self.due_at: float = 1
        """Number of settled messages on this connection at which `look` is due."""
        self.due_by = inf
        """Time at which `look` is due, however few messages are settled."""

    @property
    def most(self) -> int:
        """The largest credit."""
        return self._most

    def held(self, running: int) -> bool:
        """Take the number of unsettled messages of the application; return True if the credit grows for it.

        An application that pulls messages may need many before it settles the first.
        """
        if 2 * running < self.credit or self.credit >= self._most:
            return False
        # Whatever their size: it would wait for ever for the message without which it settles none.
        self.credit = min(self._most, STEP * self.credit)
        return True

    def weigh(self, size: int, messages: int, running: int) -> bool:
        """Take the size of messages that have arrived; return True if the credit has shrunk for it.

        `size`: bytes of all of them. `running`: messages that the application has: it can need as many again before it
        settles the first.
        """
        self._bytes += size
        self._messages += messages
        fit = MOST_BYTES * self._messages // self._bytes if self._bytes else self._most
        self.limit = min(self._most, max(self._first, fit))
        while self._messages >= 2 * LAST:
            self._bytes //= 2
            self._messages //= 2
        # A quarter more is left: sizes differ, and each withdrawal is a frame.
        if 4 * self.credit <= 5 * self.limit or self.credit <= 2 * running:
            return False
        self.credit = max(self.limit, 2 * running)
        # Measure anew: the largest credit has ended the measuring.
        self._at = None
        self.due_at = 0
        return True

    def look(self, now: float, settled: int, waits: int, ready: int) -> bool:
        """Measure the rate since the last look; return True if the credit has changed.

        `settled`, `waits`: settled messages on this connection so far, and how often a worker found none. `ready`:
        messages that are here and wait for a worker.
        """
        before = self.credit
        if self._at is None:
            self._mark(now, settled, waits)
            return False
        elapsed, done = now - self._at, settled - self._settled
        starved = (waits - self._waits) * 2 * before >= done
        enough = done >= self._needed() and elapsed >= self._period
        turns = FAR_TURNS * before
        far = starved and turns <= done < turns + before and FAR <= elapsed < FARTHEST
        # Over a slow link it takes more than SHRINKS_AFTER to know.
        turning = starved and done < turns and elapsed < FARTHEST
        if enough or far or (elapsed >= SHRINKS_AFTER and not turning):
            rate = done / elapsed if elapsed > 0 else inf
            if enough:
                self._grow(rate, starved=starved)
            if far and self.credit == before and rate >= GAIN * self._before:
                self.credit, self._before = min(self.limit, 2 * before), rate
            if elapsed >= SHRINKS_AFTER and self.credit == before:
                self._shrink(rate, ready)
            self._mark(now, settled, waits)
        else:
            self.due_at = self._settled + (turns if turning else self._needed())
            if now >= self.due_by:
                self.due_by = now + SHRINKS_AFTER
        return self.credit != before

    def _grow(self, rate: float, *, starved: bool) -> None:
        """Grow to the credit that this rate is worth, unless it is less than twice the present one."""
        wanted, most = rate * BUSY, self.limit
        if starved:
            wanted = min(rate * WAITING, max(STEP * self.credit, rate * STEP_SECONDS))
        if rate * WHOLE >= most:
            # Several such processes then share the queue as with a fixed credit.
            wanted = most
        wanted = int(min(most, wanted))
        if wanted >= 2 * self.credit or wanted == most:
            self.credit = max(self.credit, wanted)

    def _shrink(self, rate: float, ready: int) -> None:
        """Shrink if more is here than the workers do in half a second. An empty queue alone is no reason."""
        # What a slow link brings arrives all at once.
        seconds = FARTHEST / FAR_TURNS if self._before else WAITING
        wanted = max(self._first, int(min(self._most, rate * seconds)))
        if self._shrinks and self.credit > 2 * wanted and ready > wanted:
            self.credit = wanted

    def _needed(self) -> int:
        return min(TURNS * self.credit, max(self._enough, FAR_TURNS * self.credit))

    def _mark(self, now: float, settled: int, waits: int) -> None:
        self._at, self._settled, self._waits = now, settled, waits
        soon = min(self._needed(), FAR_TURNS * self.credit)
        self.due_at = settled + soon if self.credit < self._most else inf
        self.due_by = now + SHRINKS_AFTER if self._shrinks and self.credit > self._first else inf

"""Credit: the number of messages that the broker may still send to a consumer."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from redelivery.core.commands import Credit
from redelivery.core.events import Succeeded, Wanted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redelivery.core.delivery import Delivery

__all__ = ["MOST_BYTES", "MOST_CREDIT", "PARKING_NOTHING", "CreditPace", "CreditWindow", "first_credit"]


# ---- Credit ----------------------------------------------------------------------------------------------

# The two events of a message that is accepted at once. Neither parks a message: a poison acknowledgement that `Wanted`
# begins is answered soon.
PARKING_NOTHING = frozenset((Succeeded, Wanted))
# Messages. A window that only grows is widened for parked messages by at least LEAST, or by a quarter of its size
# (PART). One widened for each failed message would consist of as many subscriptions.
LEAST, PART = 16, 4
# The same where each subscription may lose a message when the connection is cut: Artemis
# (docs/measured/artemis-stomp-cuts.md, "A cut connection loses its first message").
LEAST_OF_FEW = 100


class CreditWindow:
    """Lets the broker send up to `credit` messages in addition to the parked ones, of which `max_parked` are allowed.

    With flow, the whole credit is granted by commands. With a window that was set by the subscription and grows, the
    broker itself grants the credit of settled messages again: only room for parked messages is requested, and given
    back.

    With a `pace`, the pace sets the credit. A window that grows then never shrinks: it is widened by the credit that
    the pace adds, and by the number of parked messages. If larger messages arrive, credit is withdrawn where it flows;
    those that are on their way arrive nevertheless.
    """

    __slots__ = (
        "_aside",
        "_consumer",
        "_credit",
        "_first",
        "_granted",
        "_least", "_max_parked",
        "_pace",
        "_step",
        "_too_much",
        "_widens",
        "active",
        "arrived",
        "due_at",
        "due_by",
        "grows",
        "late",
        "settled",
        "sized",
        "waits",
    )  # fmt: skip

    def __init__(self, consumer: int, credit: int, max_parked: int, pace: CreditPace | None = None) -> None:
        self._consumer = consumer
        self._max_parked = max_parked
        self._pace = pace
        self._first = credit if pace is None else pace.credit
        self._set(self._first)
        self.restart(active=False)

    def _set(self, credit: int) -> None:
        self._credit = credit
        # Grant a quarter of the credit at a time: one flow frame for it.
        self._step = max(1, credit // 4)

    def restart(self, *, active: bool, grows: bool = False, few: bool = False) -> None:
        """Start on a connection: credit is granted by flow (`active`), or the window `grows`, or neither.

        `few`: the window grows in as few steps as possible.
        """
        self._least = LEAST_OF_FEW if few else LEAST
        self._widens = grows and not active
        self._aside = 0
        if self._pace is not None:
            self._pace.restart(shrinks=active)
            self._set(self._pace.credit)
        self.due_at = self.due_by = inf
        self._look_again(paced=active or self._widens)
        # True once credit is to be withdrawn, because it is too much for the size of what arrives.
        self._too_much = False
        # True if `weigh` must be called.
        self.sized = self._pace is not None and (active or self._widens)
        # How often a worker has found no message.
        self.waits = 0
        # If the step is never reached, enough credit is left however many messages are parked.
        self.grows = self._widens and (self._pace is not None or self._max_parked >= self._step)
        # With a window that grows: true once it has grown, because room may have to be given back.
        self.active = active
        self.arrived = self.settled = self._granted = 0
        # How many messages may still arrive that the broker sent before the credit was withdrawn.
        self.late = 0

    @property
    def by_command(self) -> bool:
        """True with flow: nothing arrives that was not granted. A window's credit is granted again by the broker."""
        return self.active and not self.grows

    def set_aside(self, messages: int) -> None:
        """Note that `messages` more are set aside (fewer, if negative). They use none of the credit."""
        if not self._widens:
            # With flow they count as settled. A released one is redelivered and set aside again.
            self.settled += max(0, messages)
            return
        self._aside += messages
        # Request room with this event: if such messages fill the window, no further event may arrive.
        self.due_at = 0
        if self._pace is None:
            self.grows = self._max_parked + self._aside >= self._step or self.active

    @property
    def credit(self) -> int:
        """Number of messages that the broker may leave unsettled here in addition to the parked ones."""
        return self._credit

    @property
    def asks_above(self) -> int:
        """Number of running messages above which `held` must be called."""
        return self._credit if self._pace is None else (self._credit + 1) // 2

    def held(self, running: int) -> None:
        """Take the number of messages the application has: it may need more before it settles the first."""
        if self._pace is not None and self._pace.held(running):
            self._set(self._pace.credit)
            # Request the additional credit with this event.
            self.due_at = 0

    def weigh(self, deliveries: Sequence[Delivery], running: int) -> bool:
        """Take deliveries that have arrived; return True if the credit has shrunk, because they are large."""
        pace = self._pace
        if pace is None or not pace.weigh(sum(each.size for each in deliveries), len(deliveries), running):
            return False
        self._set(pace.credit)
        self._too_much = self.by_command
        self._look_again(paced=True)
        return True

    def look(self, now: float, ready: int) -> bool:
        """Ask the pace, at `due_at` settled messages or at `due_by`; return True if the credit has changed."""
        pace = self._pace
        changed = pace is not None and pace.look(now, self.settled, self.waits, ready)
        if pace is not None and changed:
            self._set(pace.credit)
        self._look_again(paced=True)
        return changed

    def _look_again(self, *, paced: bool) -> None:
        pace = self._pace if paced else None
        self.due_at = inf if pace is None else pace.due_at
        self.due_by = inf if pace is None else pace.due_by

    def due(self, parked: int) -> Credit | None:
        """Return the credit to grant now; None if it is too little for a frame."""
        parked = min(parked, self._max_parked)
        if self._widens and self._pace is not None:
            return self._widened(parked)
        if self.grows:
            wanted = parked + self._aside - self._granted
            # More must be free before it is given back: room must not be made and ended for each failed message.
            if -2 * self._step < wanted < self._step:
                return None
        else:
            wanted = self.settled + self._credit + parked - self._granted
            too_much, self._too_much = self._too_much, False
            if too_much and wanted < 0:
                return self._reduced(-wanted)
            if wanted <= 0 or (wanted < self._step and self._granted > self.arrived):
                return None
            if self._granted < self.arrived:
                # Those that arrived after a withdrawal had been sent before. They use the credit, too.
                wanted -= self.arrived - self._granted
                self._granted = self.arrived
                if wanted <= 0:
                    return None
        self._granted += wanted
        self.active = self._granted > 0 or not self.grows
        return Credit(self._consumer, wanted)

    def _reduced(self, excess: int) -> Credit | None:
        """Return the command that takes back what is above the credit, as far as it is not used yet."""
        back = min(excess, self._granted - self.arrived)
        if back <= 0:
            return None
        self._granted -= back
        return Credit(self._consumer, -back)

    def _widened(self, parked: int) -> Credit | None:
        """Return the credit that widens the window, if it is too small for the credit and the parked messages."""
        assert self._pace is not None
        room = self._first + self._granted
        wanted = self._credit + parked + self._aside - room
        if wanted < self._step:
            return None
        most = self._pace.most + self._max_parked + self._aside - room
        if self._credit <= room:
            wanted = max(wanted, self._least, room // PART)
        wanted = min(wanted, most)
        if wanted <= 0:
            return None
        self._granted += wanted
        return Credit(self._consumer, wanted, widens=True)

    def limited(self, ready: int, most: int) -> Credit | None:
        """Return the credit to grant while at most `most` messages may be here; `ready` of them are here already.

        For flow only: of a window, each arrival would count as room for a parked message.
        """
        # Messages that arrived after the credit was withdrawn had been sent before.
        self._granted = max(self._granted, self.arrived)
        wanted = most - ready - (self._granted - self.arrived)
        if wanted <= 0:
            return None
        self._granted += wanted
        return Credit(self._consumer, wanted)

    def withdrawn(self) -> Sequence[Credit]:
        """Return the command that takes back the unused credit: messages that arrived now would only be released."""
        if not self.by_command:
            return ()
        # More messages may have arrived than were granted, after an earlier withdrawal. That grants nothing.
        left = self.late = max(0, self._granted - self.arrived)
        self._granted -= left
        return (Credit(self._consumer, -left),)


# ---- Credit pace -----------------------------------------------------------------------------------------
# Credit by time: as many messages as a consumer handles in half a second, measured while it runs.
#
# A consumer with `redelivery.credit=auto` starts with a few messages: several processes then share a queue evenly.
# The credit grows while its handlers are fast. It shrinks only where credit flows: there the broker can be stopped.
#
# It is bounded in bytes too: `MOST_BYTES` at the mean size of the last messages. Messages of 1 MB, after small ones
# that made the credit grow, took 1.4 GB.

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

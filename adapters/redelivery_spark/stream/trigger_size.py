"""Size of batches: how long one waits to become larger. Each batch costs Spark the same, whatever its size."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from redelivery.clock import Clock
    from redelivery.core.delivery import Delivery

__all__ = ["GAP", "LAST_CALL", "LONGEST_DRAIN", "AvailableNow", "TriggerSize"]


# ---- Trigger size ----------------------------------------------------------------------------------------

WORTH = 1_500
"""Rows that must arrive while a batch waits, or it does not wait. At 5,000 a second they arrive within the default of
0.3 s. At 1,000 a second they do not, and a wait would only delay single messages.
"""


class TriggerSize:
    """Decides when a batch is large enough. One thread."""

    def __init__(self, clock: Clock, least: int | None, longest: float) -> None:
        """`least`: rows; None: as many as the rate of the last batch predicts. `longest`: seconds to wait."""
        self._clock = clock
        self._least = least
        self._longest = longest
        self._given = clock.monotonic()
        self._rate = 0.0
        self._asked = 0.0

    def begin(self) -> None:
        """Begin the wait for a batch: Spark asks for one."""
        self._asked = self._clock.monotonic()

    def enough(self, rows: int) -> bool:
        """True if a batch of so many rows is to be given out now."""
        waited = self._clock.monotonic() - self._asked
        return waited >= self._longest or rows >= self._wanted()

    def left(self) -> float:
        """Return the seconds until any batch is large enough."""
        return max(0.0, self._longest - (self._clock.monotonic() - self._asked))

    def gave(self, rows: int) -> None:
        """Note the size of the batch that was given out."""
        now = self._clock.monotonic()
        self._rate = rows / max(now - self._given, 0.001)
        self._given = now

    def _wanted(self) -> float:
        if self._least is not None:
            return self._least
        hoped = self._rate * self._longest
        return hoped if hoped >= WORTH else 0


# ---- Available now ---------------------------------------------------------------------------------------
# End of a query with AvailableNow: it processes the messages that are there when it begins, and ends.

# Seconds after the last message in which the query waits for redeliveries. Later ones are for the next run.
LONGEST_DRAIN = 60.0
LAST_CALL = 90.0
"""Seconds without a batch after which the query ends, whatever still waits. It is longer than the wait for a message
that the broker may redeliver: otherwise each run would begin that wait anew."""
# Seconds for which messages without a send time are taken.
LONGEST_INTAKE = 600.0
# Seconds after which a new connection would have brought a first message.
STEADY = 1.0
# Seconds without a message after which the destination counts as empty. A broker that pauses for longer ends a run too
# early, and the next run has the rest.
GAP = 1.0
# Of the time between two looks only so much counts: a process that stood still has read nothing meanwhile.
LONGEST_LOOK = 0.25


class AvailableNow:
    """Decides when all has been taken. A message is late if it was sent after the query began."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began, self._looked, self._quiet = clock.time(), clock.monotonic(), 0.0
        self._until = clock.monotonic() + LONGEST_INTAKE
        self.exhausted = False
        """True once all messages that were there have been taken."""

    def saw(self, taken: Sequence[Delivery], age: float | None) -> None:
        """Note the messages just taken over a connection that has been up for `age` seconds; None: it is down."""
        now = self._clock.monotonic()
        self._quiet += min(now - self._looked, LONGEST_LOOK)
        self._looked = now
        if taken:
            self._quiet = 0.0
            # The last one is checked first: reading the times of all of them takes longer than all the rest.
            late = self._late(taken[-1].timestamp) and not self.wants([each.timestamp for each in taken])
            self.exhausted = self.exhausted or late
        elif age is not None and age >= STEADY and self._quiet >= GAP:
            self.exhausted = True

    def go_on(self) -> None:
        """Reopen the intake: some messages may arrive only now, because another reader had taken them."""
        self._looked, self._quiet, self.exhausted = self._clock.monotonic(), 0.0, False

    def accepted(self) -> None:
        """Note that messages were accepted: a broker can have waited for that before it sends the next ones."""
        self._looked, self._quiet = self._clock.monotonic(), 0.0

    def wants(self, times: Sequence[datetime | None]) -> bool:
        """True if one of these messages was there at the beginning, by its send time."""
        return not all(map(self._late, times))

    def _late(self, sent: datetime | None) -> bool:
        now = self._clock.time()
        # A send time in the future proves nothing: the producer's clock is ahead.
        if sent is None or sent.timestamp() > now:
            return self._clock.monotonic() > self._until
        return sent.timestamp() > self._began

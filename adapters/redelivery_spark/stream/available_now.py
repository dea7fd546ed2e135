"""When a query that is to process what is there now, and to end, has taken all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from redelivery.clock import Clock
    from redelivery.core.delivery import Delivery

__all__ = ["GAP", "LAST_CALL", "LONGEST_DRAIN", "AvailableNow"]

# Seconds behind the last message in which it waits for redeliveries: later ones are for the next run.
LONGEST_DRAIN = 60.0
LAST_CALL = 90.0
"""Seconds without a batch after which it ends, whatever waits. Longer than a message is waited for that the broker may
send again, or each run would begin to wait for it anew."""
# Seconds that it takes messages which do not tell when they were sent.
LONGEST_INTAKE = 600.0
# Seconds after which a connection would have brought a first message.
STEADY = 1.0
# Seconds without a message after which the destination is empty: a broker that pauses for longer ends a run too early,
# and the next run has the rest.
GAP = 1.0


class AvailableNow:
    """What is known of the end. Messages are late that were sent after the beginning."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began, self._quiet_since = clock.time(), clock.monotonic()
        self._until = clock.monotonic() + LONGEST_INTAKE
        self.exhausted = False
        """Whether all that was there has been taken."""

    def saw(self, taken: Sequence[Delivery], age: float | None) -> None:
        """Learn what has just been taken from a connection that has stood for `age` seconds; None: it is down."""
        now = self._clock.monotonic()
        if taken:
            self._quiet_since = now
            # The last one tells most: to read the times of all of them takes longer than all the rest.
            late = self._late(taken[-1].timestamp) and not self.wants([each.timestamp for each in taken])
            self.exhausted = self.exhausted or late
        elif age is not None and age >= STEADY and now - self._quiet_since >= GAP:
            self.exhausted = True

    def go_on(self) -> None:
        """Learn that some of what was there may come only now: another reader had taken it."""
        self._quiet_since, self.exhausted = self._clock.monotonic(), False

    def accepted(self) -> None:
        """Learn that messages were accepted: a broker may have waited for that before it sends the next ones."""
        self._quiet_since = self._clock.monotonic()

    def wants(self, times: Sequence[datetime | None]) -> bool:
        """Whether one of these messages was there at the beginning, by when it was sent."""
        return not all(map(self._late, times))

    def _late(self, sent: datetime | None) -> bool:
        now = self._clock.time()
        # A producer's clock that is ahead tells nothing.
        if sent is None or sent.timestamp() > now:
            return self._clock.monotonic() > self._until
        return sent.timestamp() > self._began

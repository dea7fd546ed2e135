"""Lanes without a reader, at a takeover: an older start that had more readers appends to them for as long as it lives.

It lives until its readers see that the log is another's. Only the runner looks at these lanes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery_spark.wal.lane import LANES

if TYPE_CHECKING:
    from redelivery.clock import Clock
    from redelivery_spark.stream.lanes import Lanes

__all__ = ["LeftLanes"]

# Seconds between looks, and for how long there are any: an older reader asks each second whose the log is.
EACH = 1.0
LONGEST = 10.0


class LeftLanes:
    """Those of readers that this start does not have, for its first seconds."""

    def __init__(self, lanes: Lanes, readers: int, clock: Clock) -> None:
        self._lanes = lanes
        self._clock = clock
        # How far each has come, as far as it was said.
        self._known = {number: lanes[number].last for number in range(readers + 1, LANES)}
        now = clock.monotonic()
        self._next, self._until = now + EACH, now + LONGEST
        self._over = False

    def look(self) -> set[tuple[int, str]]:
        """Take in what was appended; return whose it is: lanes, and the connections that end with the older start."""
        now = self._clock.monotonic()
        if self._over or now < self._next:
            return set()
        self._next = now + EACH
        # There is a look after the last of these seconds, however long a batch takes.
        self._over = now >= self._until
        # Lanes that were never used are all the others, and each look is a request to the store: once.
        found = set[tuple[int, str]]()
        for number, known in self._known.items():
            if self._over or self._lanes[number].last:
                found |= {(number, each.connection) for each in self._lanes.look(number, known)}
                self._known[number] = self._lanes[number].last
        return found

"""Lanes without a reader after a takeover: an older start that had more readers can still append to them.

It does so until its readers see that the log belongs to another start. Only the runner checks these lanes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery_spark.wal.lane import LANES

if TYPE_CHECKING:
    from redelivery.clock import Clock
    from redelivery_spark.stream.lanes import Lanes

__all__ = ["LeftLanes"]

# Seconds between two checks, and seconds of all checks: an older reader checks each second whose the log is.
EACH = 1.0
LONGEST = 10.0


class LeftLanes:
    """Lanes of readers that this start does not have, checked in its first seconds."""

    def __init__(self, lanes: Lanes, readers: int, clock: Clock) -> None:
        self._lanes = lanes
        self._clock = clock
        # Number of the last segment of each that was reported.
        self._known = {number: lanes[number].last for number in range(readers + 1, LANES)}
        now = clock.monotonic()
        self._next, self._until = now + EACH, now + LONGEST
        self._over = False

    def look(self) -> set[tuple[int, str]]:
        """Read what was appended; return its lanes and connections: those connections end with the older start."""
        now = self._clock.monotonic()
        if self._over or now < self._next:
            return set()
        self._next = now + EACH
        # The last check is made after the end of this time, however long a batch takes.
        self._over = now >= self._until
        # Unused lanes are checked once: they are most, and each check is a request to the store.
        found = set[tuple[int, str]]()
        for number, known in self._known.items():
            if self._over or self._lanes[number].last:
                found |= {(number, each.connection) for each in self._lanes.look(number, known)}
                self._known[number] = self._lanes[number].last
        return found

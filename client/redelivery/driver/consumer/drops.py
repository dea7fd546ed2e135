"""Count of messages that a connection has dropped instead of dead-lettering them."""

from __future__ import annotations

import threading

__all__ = ["Drops"]


class Drops:
    """Number of dead letters that a connection has dropped; reported at each multiple of `interval`, 0: never."""

    def __init__(self, interval: int) -> None:
        self._interval = interval
        self._dropped = 0
        self._lock = threading.Lock()

    def count(self) -> int | None:
        """Count one more; return the number to report, or None."""
        with self._lock:
            self._dropped += 1
            dropped = self._dropped
        return None if not self._interval or dropped % self._interval else dropped

"""Exclusive runs: a crash suspect runs alone in its process, and nothing waits for that for ever."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable

__all__ = ["PATIENCE", "SuspectIsolation"]

PATIENCE = 10.0
"""Seconds for which no handler is started, to let a suspect run alone. If a handler still runs then, others are started
for as long before it is tried again: one handler that never ends must not stop the process."""


class SuspectIsolation:
    """Counts the running handlers of a process; gives turns for exclusive runs. Not thread-safe: its driver locks it.

    `who`: the consumer that has a suspect. `leave` and `withdraw` return True if waiting consumers must be woken.
    """

    def __init__(self) -> None:
        self.inside = 0
        self._claims: deque[Hashable] = deque()
        # Since when the first of `_claims` waits.
        self._since = 0.0
        self._alone: Hashable | None = None

    def enter(self, now: float) -> bool:
        """Start a handler, unless one runs exclusively or waits to; return True if it may run."""
        if self._alone is not None or (self._claims and self._closed(now)):
            return False
        self.inside += 1
        return True

    def leave(self) -> bool:
        """End what `enter` started; return True if a consumer waits for an exclusive run."""
        self.inside -= 1
        return self.inside == 0 and bool(self._claims)

    def claim(self, who: Hashable, now: float) -> None:
        """Request an exclusive run for a consumer."""
        if who not in self._claims and who != self._alone:
            if not self._claims:
                self._since = now
            self._claims.append(who)

    def turn(self, who: Hashable) -> bool:
        """Start the exclusive run of a consumer, if it is its turn; return True if so."""
        if self.inside or self._alone is not None or not self._claims or self._claims[0] != who:
            return False
        self._claims.popleft()
        self._alone = who
        return True

    def end_turn(self, now: float) -> None:
        """End an exclusive run; the caller wakes the waiting consumers."""
        self._alone = None
        self._since = now

    def withdraw(self, who: Hashable) -> bool:
        """Withdraw a consumer's request; return True if there was one."""
        if who not in self._claims:
            return False
        self._claims.remove(who)
        return True

    def until(self, now: float) -> float | None:
        """Return the seconds after which `enter` may answer differently without any event; None: it cannot."""
        if not self._claims or self._alone is not None:
            return None
        return PATIENCE - (now - self._since) % PATIENCE

    def _closed(self, now: float) -> bool:
        return int((now - self._since) // PATIENCE) % 2 == 0

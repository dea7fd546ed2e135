"""Who may begin beside whom: a suspect runs alone in its process, and nothing waits for that for ever."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable

__all__ = ["PATIENCE", "SuspectIsolation"]

PATIENCE = 10.0
"""Seconds for which nothing is begun so that a suspect can run alone; then, if a handler still runs, others go on for
as long before it is tried again: one handler that takes for ever must not stop the process."""


class SuspectIsolation:
    """Counts what runs in a process, and gives turns to run alone. Not safe for threads: its driver locks it.

    `who` is whoever has a suspect: a consumer. Whoever leaves or ends a turn is told whether others must be woken.
    """

    def __init__(self) -> None:
        self.inside = 0
        self._claims: deque[Hashable] = deque()
        # When the first of those that claim a turn began to.
        self._since = 0.0
        self._alone: Hashable | None = None

    def enter(self, now: float) -> bool:
        """Begin something, if nobody is alone or waits to be."""
        if self._alone is not None or (self._claims and self._closed(now)):
            return False
        self.inside += 1
        return True

    def leave(self) -> bool:
        """End what `enter` began."""
        self.inside -= 1
        return self.inside == 0 and bool(self._claims)

    def claim(self, who: Hashable, now: float) -> None:
        """Ask for a turn."""
        if who not in self._claims and who != self._alone:
            if not self._claims:
                self._since = now
            self._claims.append(who)

    def turn(self, who: Hashable) -> bool:
        """Begin a turn, if it is the time for it."""
        if self.inside or self._alone is not None or not self._claims or self._claims[0] != who:
            return False
        self._claims.popleft()
        self._alone = who
        return True

    def end_turn(self, now: float) -> None:
        """End a turn; whoever waits is to be woken."""
        self._alone = None
        self._since = now

    def withdraw(self, who: Hashable) -> bool:
        """Claim no longer."""
        if who not in self._claims:
            return False
        self._claims.remove(who)
        return True

    def until(self, now: float) -> float | None:
        """Return the seconds until `enter` may answer otherwise by itself, or None."""
        if not self._claims or self._alone is not None:
            return None
        return PATIENCE - (now - self._since) % PATIENCE

    def _closed(self, now: float) -> bool:
        return int((now - self._since) // PATIENCE) % 2 == 0

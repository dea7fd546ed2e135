"""Pulse of a thread or an event loop: whether it still turns, found out by asking it."""

from __future__ import annotations

__all__ = ["SILENT", "Pulse"]

# Seconds without an answer after which it counts as dead: operations, health.
SILENT = 30.0


class Pulse:
    """One question at a time, and since when it has no answer. No lock: each step is one assignment."""

    def __init__(self) -> None:
        self._asked: float | None = None

    def answer(self) -> None:
        """Answer: called by what is watched, whenever it turns."""
        self._asked = None

    def ask(self, now: float) -> float:
        """Ask, unless a question is open; return the seconds since the open one was asked."""
        asked = self._asked
        if asked is None:
            self._asked = now
            return 0.0
        return now - asked

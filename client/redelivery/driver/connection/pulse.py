"""Pulse of a thread or an event loop: a question that it answers when it turns, to find out if it still does."""

from __future__ import annotations

__all__ = ["SILENT", "Pulse"]

# Seconds without an answer after which the thread or loop counts as dead in `health()`.
SILENT = 30.0


class Pulse:
    """One open question at most, and when it was asked. No lock: each step is one assignment."""

    def __init__(self) -> None:
        self._asked: float | None = None

    def answer(self) -> None:
        """Answer the question: called by the watched thread or loop, whenever it turns."""
        self._asked = None

    def ask(self, now: float) -> float:
        """Ask, unless a question is open; return the seconds since the open one was asked, else 0."""
        asked = self._asked
        if asked is None:
            self._asked = now
            return 0.0
        return now - asked

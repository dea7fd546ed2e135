"""Time of a run that ends when it is idle: it stands still until a test's work is done, however slow the machine is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.driver.connection import connection_end

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

__all__ = ["IDLE", "Time", "idle_once"]

IDLE = 0.02  # seconds


class Time:
    """Replacement of the module `time`: it stands still until all is done, unless a test moves it."""

    def __init__(self, done: Callable[[], bool]) -> None:
        self.now, self.looks = 1000.0, 0
        self._done = done

    def monotonic(self) -> float:
        """Return the time."""
        self.looks += 1
        if self._done():
            self.now += IDLE
        return self.now


def idle_once(monkeypatch: pytest.MonkeyPatch, done: Callable[[], bool]) -> Time:
    """Start the idle time of runs once all is done; from then on each look takes `IDLE` seconds."""
    made = Time(done)
    monkeypatch.setattr(connection_end, "time", made)
    return made

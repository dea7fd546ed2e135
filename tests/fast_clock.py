"""A clock that runs faster than the machine's, for programs that are run as they are."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from redelivery.clock import Callback, Cancel

__all__ = ["FastClock", "fast"]

SPEED = 25.0


class FastClock:
    """The machine's clocks, so many times as fast."""

    def __init__(self) -> None:
        self._offset = time.time() - self.monotonic()

    def monotonic(self) -> float:
        """Return fast seconds."""
        return time.monotonic() * SPEED

    def time(self) -> float:
        """Return the time of day, which runs ahead."""
        return self.monotonic() + self._offset

    def wait(self, condition: threading.Condition, timeout: float | None) -> None:
        """Wait for `notify`, or for so many fast seconds."""
        condition.wait(None if timeout is None else timeout / SPEED)

    def notify(self, condition: threading.Condition, waiters: int = 1) -> None:
        """Wake so many of those that wait."""
        condition.notify(waiters)

    def call_later(self, delay: float, callback: Callback) -> Cancel:
        """Call `callback` from a timer thread, in fast seconds."""
        timer = threading.Timer(delay / SPEED, callback)
        timer.daemon = True
        timer.start()
        return timer.cancel

    def attach(self) -> None:
        """Nothing to count."""

    def detach(self) -> None:
        """Nothing to count."""


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> FastClock:
    """Let connections and brokers that name no clock run on a fast one."""
    clock = FastClock()
    monkeypatch.setattr("redelivery.driver.connection.connection_parts.SystemClock", lambda: clock)
    monkeypatch.setattr("redelivery_memory.broker.SystemClock", lambda: clock)
    monkeypatch.setattr(
        "redelivery.driver.connection.stop_when_idle.time", SimpleNamespace(monotonic=clock.monotonic)
    )
    # No broker of an earlier test, none for a later one.
    monkeypatch.setattr("redelivery_memory.broker._hubs", {})
    return clock

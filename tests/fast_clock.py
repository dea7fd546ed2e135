"""Clock that runs faster than the machine's, for programs that run unchanged."""

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
    """Clocks of the machine, sped up by `SPEED`."""

    def __init__(self) -> None:
        self._offset = time.time() - self.monotonic()

    def monotonic(self) -> float:
        """Return the seconds of the fast clock."""
        return time.monotonic() * SPEED

    def time(self) -> float:
        """Return the time of day, which runs ahead."""
        return self.monotonic() + self._offset

    def wait(self, condition: threading.Condition, timeout: float | None) -> None:
        """Wait for `notify`, or for `timeout` fast seconds."""
        condition.wait(None if timeout is None else timeout / SPEED)

    def notify(self, condition: threading.Condition, waiters: int = 1) -> None:
        """Wake this number of threads that wait."""
        condition.notify(waiters)

    def call_later(self, delay: float, callback: Callback) -> Cancel:
        """Call `callback` on a timer thread, after `delay` fast seconds."""
        timer = threading.Timer(delay / SPEED, callback)
        timer.daemon = True
        timer.start()
        return timer.cancel

    def attach(self) -> None:
        """Do nothing."""

    def detach(self) -> None:
        """Do nothing."""


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> FastClock:
    """Use a fast clock for connections and brokers without a clock of their own."""
    clock = FastClock()
    monkeypatch.setattr("redelivery.driver.connection.connection_base.SystemClock", lambda: clock)
    monkeypatch.setattr("redelivery_memory.broker.SystemClock", lambda: clock)
    monkeypatch.setattr(
        "redelivery.driver.connection.connection_end.time", SimpleNamespace(monotonic=clock.monotonic)
    )
    # Brokers of earlier and later tests are separate.
    monkeypatch.setattr("redelivery_memory.broker._hubs", {})
    return clock

"""Handlers that hang in their thread for as long as a test wants, and the log lines meanwhile."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

    from redelivery.testing import ManualClock

__all__ = ["PATIENCE", "Gate", "lines"]

PATIENCE = 60.0  # seconds


class Gate:
    """Gate at which a handler hangs in its thread; the test's clock does not wait for it."""

    def __init__(self, clock: ManualClock) -> None:
        self.open = threading.Event()
        self.inside = threading.Semaphore(0)
        self._clock = clock

    def __call__(self, _: Any) -> None:
        """Hang."""
        self._clock.detach()
        self.inside.release()
        self.open.wait(PATIENCE)
        self._clock.attach()

    def entered(self) -> bool:
        """Wait until one more handler hangs."""
        return self.inside.acquire(timeout=PATIENCE)


def lines(caplog: pytest.LogCaptureFixture, *levels: int) -> list[str]:
    """Return the first line of each record of these levels."""
    wanted = levels or (logging.WARNING, logging.ERROR)
    return [r.getMessage().partition("\n")[0] for r in caplog.records if r.levelno in wanted]

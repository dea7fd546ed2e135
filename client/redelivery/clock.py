"""The clock that drivers and adapters read. The engine reads none: it is told `now`."""

from __future__ import annotations

import threading
import time
from typing import Protocol

__all__ = ["Cancel", "Clock", "SystemClock", "pass_time"]


class Cancel(Protocol):
    """Undoes a `Clock.call_later` that has not run yet."""

    def __call__(self) -> None:
        """Undo it; harmless afterwards."""


class Clock(Protocol):
    """Time, and waiting for it. `redelivery.testing.ManualClock` is one that a test moves."""

    def monotonic(self) -> float:
        """Seconds of a clock that is never set back: all schedules run on it."""
        ...

    def time(self) -> float:
        """Seconds since the Unix epoch: expirations and time stamps."""
        ...

    def wait(self, condition: threading.Condition, timeout: float | None) -> None:
        """Wait, with the condition's lock held, until `notify` or for `timeout` seconds (None: for ever)."""

    def notify(self, condition: threading.Condition, waiters: int = 1) -> None:
        """Wake so many of those that wait, with the condition's lock held."""

    def call_later(self, delay: float, callback: Callback) -> Cancel:
        """Call `callback` on another thread after `delay` seconds."""
        ...

    def attach(self) -> None:
        """Count in one more thread that does its waiting here (a manual clock moves only when all of them wait)."""

    def detach(self) -> None:
        """Count it out."""


def pass_time(clock: Clock, seconds: float) -> None:
    """Let time pass on this thread: as long as it takes on a real clock, at once on a manual one."""
    until, nobody = clock.monotonic() + seconds, threading.Condition()
    with nobody:
        while (left := until - clock.monotonic()) > 0:
            clock.wait(nobody, left)


class Callback(Protocol):
    """What `call_later` calls."""

    def __call__(self) -> object:
        """Run."""


class SystemClock:
    """The machine's clocks."""

    monotonic = staticmethod(time.monotonic)
    time = staticmethod(time.time)

    def wait(self, condition: threading.Condition, timeout: float | None) -> None:
        """Wait for `notify`, or for `timeout` seconds."""
        condition.wait(timeout)

    def notify(self, condition: threading.Condition, waiters: int = 1) -> None:
        """Wake so many of those that wait."""
        condition.notify(waiters)

    def call_later(self, delay: float, callback: Callback) -> Cancel:
        """Call `callback` from a timer thread."""
        timer = threading.Timer(delay, callback)
        timer.daemon = True
        timer.start()
        return timer.cancel

    def attach(self) -> None:
        """Nothing to count."""

    def detach(self) -> None:
        """Nothing to count."""

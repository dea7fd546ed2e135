"""Requests to end a run: from another thread, from a handler, or by a signal."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from redelivery.clock import SystemClock

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from types import FrameType

    from redelivery.clock import Clock

__all__ = ["LoopSignals", "Signals", "Stopping"]


# Seconds of one wait at most. A signal in the instant before a wait begins does not end it: Python handles the signal
# only when the wait is over. With long waits, a SIGINT was never handled.
LOOK = 0.2
# Seconds of real time between the jumps of a manual clock.
JUMPS = 0.002


class Stopping:
    """Event that a signal handler may set: `threading.Event` deadlocks if the handler interrupts its waiting thread."""

    def __init__(self) -> None:
        self._asked = False
        self._wakes: SimpleQueue[None] = SimpleQueue()  # because its `put` is reentrant

    def set(self) -> None:
        """Request the end of the run; that cannot be undone."""
        self._asked = True
        self._wakes.put(None)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the end is requested, or for `timeout` seconds of real time; return True if it was requested."""
        return self._wait_until(None if timeout is None else time.monotonic() + timeout, time.monotonic)

    def wait_by(self, clock: Clock, timeout: float | None) -> bool:
        """Wait as `wait` does, for `timeout` seconds of a clock. A manual clock that can jump jumps for this wait."""
        if timeout is None or isinstance(clock, SystemClock):
            return self.wait(timeout)
        undo = clock.call_later(timeout, lambda: self._wakes.put(None))
        try:
            jump: Callable[[], None] | None = getattr(clock, "jump", None)  # manual clocks have it
            return self._wait_until(clock.monotonic() + timeout, clock.monotonic, jump)
        finally:
            undo()

    def _wait_until(
        self, deadline: float | None, now: Callable[[], float], jump: Callable[[], None] | None = None
    ) -> bool:
        while not self._asked:
            left = LOOK if deadline is None else min(LOOK, deadline - now())
            if left <= 0:
                break
            if jump is not None:
                jump()
            with contextlib.suppress(Empty):
                self._wakes.get(timeout=left if jump is None else JUMPS)
                # Wake the next waiting thread, too.
                if self._asked:
                    self._wakes.put(None)
        return self._asked


class Signals:
    """SIGTERM and SIGINT call `stop` once; a second one acts as it did before. In the main thread only."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop = stop
        self._before: dict[int, Any] = {}

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the signature of handlers
        self._restore()
        self._stop()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def __exit__(self, *_: object) -> None:
        self._restore()


class LoopSignals:
    """As `Signals`, but an event loop calls `stop`. Only the main thread's loop can do that."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
        self._loop = loop
        self._stop = stop
        self._handled: list[signal.Signals] = []

    def __enter__(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            # On another thread's loop there are no signals; the application calls `stop`.
            with contextlib.suppress(ValueError, RuntimeError, NotImplementedError):
                self._loop.add_signal_handler(number, self._handle)
                self._handled.append(number)

    def _handle(self) -> None:
        # A second signal acts as it did before.
        self._remove()
        self._stop()

    def _remove(self) -> None:
        for number in self._handled:
            self._loop.remove_signal_handler(number)
        self._handled = []

    def __exit__(self, *_: object) -> None:
        self._remove()

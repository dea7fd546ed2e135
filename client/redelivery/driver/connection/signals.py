"""How a run is asked to end: from another thread, from a handler, or by a signal."""

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


# A signal that comes in the instant before a wait begins does not end it: Python only notes it, and handles it when the
# wait is over. So no wait is long (seen: a SIGINT that was never handled).
LOOK = 0.2  # seconds
# Seconds of real time between the jumps of a clock that a test moves.
JUMPS = 0.002


class Stopping:
    """An event that a signal handler may set: `threading.Event` deadlocks if it interrupts its own waiter."""

    def __init__(self) -> None:
        self._asked = False
        self._wakes: SimpleQueue[None] = SimpleQueue()  # its `put` is reentrant

    def set(self) -> None:
        """Ask for the end, once and for all."""
        self._asked = True
        self._wakes.put(None)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the end is asked for, or for `timeout` seconds of real time; return whether it was."""
        return self._wait_until(None if timeout is None else time.monotonic() + timeout, time.monotonic)

    def wait_by(self, clock: Clock, timeout: float | None) -> bool:
        """Wait as `wait` does, for `timeout` seconds of a clock. One that moves by itself moves for this wait, too."""
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
                # For the next one that waits.
                if self._asked:
                    self._wakes.put(None)
        return self._asked


class Signals:
    """SIGTERM and SIGINT call `stop` once; a second one acts as it always did. In the main thread only."""

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
    """The same on an event loop, which calls `stop` in one of its turns. Only the main thread's loop can do that."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
        self._loop = loop
        self._stop = stop
        self._handled: list[signal.Signals] = []

    def __enter__(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            # Elsewhere `stop` is the way to end.
            with contextlib.suppress(ValueError, RuntimeError, NotImplementedError):
                self._loop.add_signal_handler(number, self._handle)
                self._handled.append(number)

    def _handle(self) -> None:
        # A second one acts as it always did.
        self._remove()
        self._stop()

    def _remove(self) -> None:
        for number in self._handled:
            self._loop.remove_signal_handler(number)
        self._handled = []

    def __exit__(self, *_: object) -> None:
        self._remove()

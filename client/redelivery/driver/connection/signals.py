"""How a run is asked to end: from another thread, from a handler, or by a signal."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

__all__ = ["Signals", "Stopping"]


# A signal that comes in the instant before a wait begins does not end it: Python only notes it, and handles it when the
# wait is over. So no wait is long (seen: a SIGINT that was never handled).
LOOK = 0.2  # seconds


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
        """Wait until the end is asked for, or for `timeout` seconds; return whether it was."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._asked:
            left = LOOK if deadline is None else min(LOOK, deadline - time.monotonic())
            if left <= 0:
                break
            with contextlib.suppress(Empty):
                self._wakes.get(timeout=left)
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

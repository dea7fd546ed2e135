"""Thread of a connection that calls an application's hooks: a hook may take long, and may wait for the connection."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from redelivery.clock import join_within, start_attached
from redelivery.driver.connection.hook_queue import HookQueue, tell
from redelivery.log import logger

if TYPE_CHECKING:
    from redelivery.clock import Clock
    from redelivery.driver.consumer.hook_call import HookCall

__all__ = ["HookThread"]


class HookThread:
    """One thread, started by the first call. It makes the calls one after the other, in order.

    It is counted by the clock, and waits on it: a manual clock does not move before the queued calls are made.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._turn = threading.Condition()
        self._calls = HookQueue()
        self._closed = False
        self._thread: threading.Thread | None = None

    @property
    def dropped(self) -> int:
        """Number of calls that were dropped, because too many waited."""
        return self._calls.dropped

    def here(self, call: HookCall) -> None:
        """Make a call on the current thread."""
        call()

    def elsewhere(self, call: HookCall) -> None:
        """Queue a call for the hook thread; drop it if the connection is closed."""
        with self._turn:
            if self._closed:
                return
            if self._thread is None:
                thread = threading.Thread(target=self._keep, name="redelivery-hooks", daemon=True)
                start_attached(thread, self._clock)
                self._thread = thread
            first = self._calls.add(call)
            self._clock.notify(self._turn)
        if first:
            tell()

    def close(self, timeout: float) -> None:
        """Make the queued calls and end the thread, within `timeout` seconds of real time."""
        with self._turn:
            self._closed = True
            self._clock.notify(self._turn)
        if self._thread is not None and self._thread is not threading.current_thread():
            join_within(self._thread, timeout)
        with self._turn:
            left = self._calls.clear()
        if left:
            logger.warning("%d calls of on_dead_letter were not made before the connection was closed", left)

    def _keep(self) -> None:
        try:
            while (call := self._next()) is not None:
                call()
        finally:
            self._clock.detach()

    def _next(self) -> HookCall | None:
        """Wait for the next call, and return it; None: the thread is to end."""
        with self._turn:
            while (call := self._calls.take()) is None and not self._closed:
                self._clock.wait(self._turn, None)
            return call

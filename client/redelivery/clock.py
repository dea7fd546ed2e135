"""Clocks that drivers and adapters read. The engine reads none: it is given `now`."""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import suppress
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Protocol

__all__ = ["Cancel", "Clock", "SystemClock", "capped", "join_within", "pass_time"]

# Seconds. Waits of more than `threading.TIMEOUT_MAX` (292 years) raise OverflowError, and Java's "never" is 292 million
# years. Each caller looks at the time again after a wait: a shorter wait makes nothing early.
LONGEST_WAIT = 86400.0


def capped(seconds: float) -> float:
    """Return how long to wait at once out of `seconds`. All waits in real time use this function."""
    return min(seconds, LONGEST_WAIT)


def join_within(thread: threading.Thread, seconds: float) -> None:
    """Wait until a thread has ended, for `seconds` of real time at most."""
    deadline = time.monotonic() + seconds
    thread.join(capped(seconds))
    while thread.is_alive() and (left := deadline - time.monotonic()) > 0:
        thread.join(capped(left))


def start_attached(thread: threading.Thread, clock: Clock) -> None:
    """Start a thread that the clock counts, and that detaches itself. One that cannot start is not counted."""
    clock.attach()
    try:
        thread.start()
    except BaseException:
        clock.detach()
        raise


class Cancel(Protocol):
    """Function that cancels a `Clock.call_later` that has not run yet."""

    def __call__(self) -> None:
        """Cancel the call. Has no effect afterwards."""


class Clock(Protocol):
    """Time, and waiting for it. `redelivery.testing.ManualClock` is a clock that a test moves."""

    def monotonic(self) -> float:
        """Return the seconds of a clock that is never set back. All schedules use it."""
        ...

    def time(self) -> float:
        """Return the seconds since the Unix epoch. Expirations and time stamps use it."""
        ...

    def wait(self, condition: threading.Condition, timeout: float | None) -> None:
        """Wait until `notify`, with the condition's lock held.

        It may end earlier: callers look at the time again.

        Args:
            condition: Condition to wait for.
            timeout: Seconds; None: for ever.
        """

    def notify(self, condition: threading.Condition, waiters: int = 1) -> None:
        """Wake this number of threads that wait for a condition, with its lock held."""

    def call_later(self, delay: float, callback: Callback) -> Cancel:
        """Call a function on another thread.

        Args:
            delay: Seconds until the call.
            callback: Function without arguments.

        Returns:
            Function that cancels the call.
        """
        ...

    def attach(self) -> None:
        """Count one more thread that waits on this clock. A manual clock moves only when all of them wait."""

    def detach(self) -> None:
        """Count one such thread less."""


def pass_time(clock: Clock, seconds: float) -> None:
    """Wait on this thread: `seconds` of real time, or until a manual clock has moved that far."""
    until, nobody = clock.monotonic() + seconds, threading.Condition()
    with nobody:
        while (left := until - clock.monotonic()) > 0:
            clock.wait(nobody, left)


class Callback(Protocol):
    """Function that `call_later` calls."""

    def __call__(self) -> object:
        """Run."""


class _Timers:
    """Pending calls of this process: a heap, and one daemon thread, which lives while a call is pending."""

    def __init__(self) -> None:
        self._turn = threading.Condition()
        # Time, number, and a list with the callback. The list is empty if the call was cancelled.
        self._waiting: list[tuple[float, int, list[Callback]]] = []
        self._numbers = count()
        self._cancelled = 0
        self._thread: threading.Thread | None = None

    def add(self, at: float, callback: Callback) -> Cancel:
        """Call a function at a time of the monotonic clock; return a function that cancels it."""
        held = [callback]
        with self._turn:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="redelivery-timers", daemon=True)
                # It may raise. Then no call is pending, and the next `add` tries again.
                thread.start()
                self._thread = thread
            heappush(self._waiting, (at, next(self._numbers), held))
            if self._waiting[0][2] is held:
                self._turn.notify()
        return lambda: self._cancel(held)

    def _cancel(self, held: list[Callback]) -> None:
        with self._turn:
            if not held:
                return
            held.clear()
            self._cancelled += 1
            # Cancelled calls stay in the heap until they are more than half of it: each removal is cheap then.
            if 2 * self._cancelled > len(self._waiting):
                self._waiting = [each for each in self._waiting if each[2]]
                heapify(self._waiting)
                self._cancelled = 0
                self._turn.notify()

    def _run(self) -> None:
        while True:
            with self._turn:
                callback = self._next()
                if callback is None:
                    self._thread = None
                    return
            try:
                callback()
            except BaseException:  # noqa: BLE001 - reported as from a thread of its own; the other calls are made
                with suppress(BaseException):
                    threading.excepthook(
                        threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread()))
                    )

    def _next(self) -> Callback | None:
        """Wait for the next call that is due; None if none is pending. With the lock held."""
        while self._waiting:
            at, _, held = self._waiting[0]
            left = at - time.monotonic()
            if held and left > 0:
                # No lock can wait longer. A later time takes several waits.
                self._turn.wait(min(left, threading.TIMEOUT_MAX))
                continue
            heappop(self._waiting)
            if held:
                return held.pop()
            self._cancelled -= 1
        return None


_timers = _Timers()


def _begin_anew() -> None:
    """Drop the parent's pending calls in a child process: the thread that would make them is not there."""
    global _timers  # noqa: PLW0603 - one for the process
    _timers = _Timers()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


class SystemClock:
    """Clocks of the machine."""

    monotonic = staticmethod(time.monotonic)
    time = staticmethod(time.time)

    def wait(self, condition: threading.Condition, timeout: float | None) -> None:
        """Wait for `notify`, or for `timeout` seconds, a day at most."""
        condition.wait(None if timeout is None else capped(timeout))

    def notify(self, condition: threading.Condition, waiters: int = 1) -> None:
        """Wake this number of threads that wait for a condition."""
        condition.notify(waiters)

    def call_later(self, delay: float, callback: Callback) -> Cancel:
        """Call `callback` on the one thread that makes all such calls. It must not take long."""
        return _timers.add(time.monotonic() + delay, callback)

    def attach(self) -> None:
        """Do nothing: real time does not depend on threads."""

    def detach(self) -> None:
        """Do nothing: real time does not depend on threads."""

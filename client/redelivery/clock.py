"""The clock that drivers and adapters read. The engine reads none: it is told `now`."""

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

# Seconds. The platform's waits end at `threading.TIMEOUT_MAX` (292 years), beyond which they raise OverflowError, and
# Java's "never" is 292 million years. Who waits looks at the time again afterwards, so nothing is early for it.
LONGEST_WAIT = 86400.0


def capped(seconds: float) -> float:
    """Return how long to wait at once, for what is to last `seconds`: the one seam for all waits in real time."""
    return min(seconds, LONGEST_WAIT)


def join_within(thread: threading.Thread, seconds: float) -> None:
    """Wait for the end of a thread, for `seconds` of real time at most."""
    deadline = time.monotonic() + seconds
    thread.join(capped(seconds))
    while thread.is_alive() and (left := deadline - time.monotonic()) > 0:
        thread.join(capped(left))


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
        """Wait, with the condition's lock held, until `notify` or for `timeout` seconds (None: for ever).

        It may end earlier: callers look at the time again.
        """

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


class _Timers:
    """What is called later in this process: a heap, and one daemon thread, which lives as long as something waits."""

    def __init__(self) -> None:
        self._turn = threading.Condition()
        # Time, number and callback, which is taken away where it is cancelled.
        self._waiting: list[tuple[float, int, list[Callback]]] = []
        self._numbers = count()
        self._cancelled = 0
        self._thread: threading.Thread | None = None

    def add(self, at: float, callback: Callback) -> Cancel:
        """Call it at a time of the monotonic clock; return what cancels it."""
        held = [callback]
        with self._turn:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="redelivery-timers", daemon=True)
                # It may raise: then nothing waits, and the next call tries again.
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
            # What is cancelled stays in the heap until most of it is: each costs little then.
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
            except BaseException:  # noqa: BLE001 - as in a thread of its own: it is reported, and the others are called
                with suppress(BaseException):
                    threading.excepthook(
                        threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread()))
                    )

    def _next(self) -> Callback | None:
        """Wait for the next callback that is due; None if nothing waits. With the lock held."""
        while self._waiting:
            at, _, held = self._waiting[0]
            left = at - time.monotonic()
            if held and left > 0:
                # No lock can wait longer; a later time comes in several waits.
                self._turn.wait(min(left, threading.TIMEOUT_MAX))
                continue
            heappop(self._waiting)
            if held:
                return held.pop()
            self._cancelled -= 1
        return None


_timers = _Timers()


def _begin_anew() -> None:
    """Forget in a child process what its parent calls later: the thread is not there."""
    global _timers  # noqa: PLW0603 - one for the process
    _timers = _Timers()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


class SystemClock:
    """The machine's clocks."""

    monotonic = staticmethod(time.monotonic)
    time = staticmethod(time.time)

    def wait(self, condition: threading.Condition, timeout: float | None) -> None:
        """Wait for `notify`, or for `timeout` seconds, a day at most."""
        condition.wait(None if timeout is None else capped(timeout))

    def notify(self, condition: threading.Condition, waiters: int = 1) -> None:
        """Wake so many of those that wait."""
        condition.notify(waiters)

    def call_later(self, delay: float, callback: Callback) -> Cancel:
        """Call `callback` from the thread of all that is called later: it must not take long."""
        return _timers.add(time.monotonic() + delay, callback)

    def attach(self) -> None:
        """Nothing to count."""

    def detach(self) -> None:
        """Nothing to count."""

"""A clock that a test moves: a week of back-off passes in milliseconds, and always in the same order."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from redelivery.core.option_values import seconds
from redelivery.testing.clock_threads import Alarm, Threads

if TYPE_CHECKING:
    from redelivery.clock import Callback, Cancel

__all__ = ["ManualClock"]

START = datetime(2025, 1, 1, tzinfo=UTC)
# Seconds: sums of floats miss a deadline by less, and ten times `advance(0.1)` must reach 1.0.
SLACK = 1e-6
# Of an event loop without any activity, before it counts as idle.
TURNS = 25


class ManualClock:
    """A `Clock` that stands still until it is moved. Pass it as `connect(..., clock=clock)`.

    `advance` goes from deadline to deadline: at each it wakes who waits there, or calls what was to be called
    later (on the thread that advances), and lets all threads of the library come to rest before the next one.
    It raises RuntimeError when they have not after `patience` seconds of real time: a handler hangs, perhaps.

    `auto_advance=True`: time jumps to the next deadline by itself whenever the library's threads are at rest
    and another thread waits, as a test does in `consumer.receive(timeout=3600)`. `start`: the time of day at
    the beginning, an aware datetime or seconds since the Unix epoch.
    """

    def __init__(
        self, start: datetime | float = START, *, auto_advance: bool = False, patience: float = 10.0
    ) -> None:
        # Not 0, which a program may take for "none".
        self._now = 1000.0
        epoch = start.timestamp() if isinstance(start, datetime) else start
        self._offset = epoch - self._now
        self._patience = patience
        self._auto = auto_advance
        # Where `advance` has been told to go, free of rounding.
        self._goal_ns = round(self._now * 1e9)
        self._changed = threading.Condition(threading.Lock())  # guards all that follows
        self._threads = Threads()
        self._alarms: list[tuple[float, int, Alarm]] = []
        self._waiters: dict[threading.Condition, dict[Alarm, None]] = {}
        # Waiters that were not counted in.
        self._strangers: dict[Alarm, None] = {}
        self._activity = 0  # grows with all that happens

    # What the library calls: `redelivery.clock.Clock`.

    def monotonic(self) -> float:
        """Return the seconds of the steady clock."""
        return self._now

    def time(self) -> float:
        """Return the seconds since the Unix epoch."""
        return self._now + self._offset

    def wait(self, condition: threading.Condition, timeout: float | None) -> None:
        """Wait, with the condition's lock held, until `notify` or until `timeout` seconds have passed."""
        if timeout is not None and timeout <= 0:
            condition.wait(0)
            return
        alarm = Alarm(None if timeout is None else self._now + timeout)
        alarm.condition = condition
        with self._changed:
            self._enter(alarm, condition)
        try:
            while not alarm.awake:
                condition.wait()
        finally:
            with self._changed:
                self._leave(alarm, condition)

    def notify(self, condition: threading.Condition, waiters: int = 1) -> None:
        """Wake so many of those that wait, with the condition's lock held: they run from now on."""
        with self._changed:
            self._activity += 1
            for alarm in self._waiters.get(condition, ()):
                if waiters <= 0:
                    break
                if not alarm.awake:
                    alarm.awake = True
                    waiters -= 1
        condition.notify_all()

    def call_later(self, delay: float, callback: Callback) -> Cancel:
        """Call `callback` when `delay` seconds have been advanced, on the thread that advances."""
        alarm = Alarm(self._now + max(0.0, delay))
        alarm.callback = callback
        with self._changed:
            self._push(alarm)

        def cancel() -> None:
            alarm.awake = True

        return cancel

    def attach(self) -> None:
        """Count in one more thread: the caller is about to start it."""
        with self._changed:
            self._threads.attach()

    def detach(self) -> None:
        """Count out the calling thread, which ends."""
        with self._changed:
            self._threads.detach()
            self._touch()

    # What a test calls.

    def advance(self, by: float | timedelta) -> None:
        """Move on by seconds or a `timedelta`, deadline after deadline, and return when all are at rest."""
        target = self._aim(by)
        self._rest()
        while self._step(target + SLACK):
            self._rest()
        self._arrive(target)

    def run_until_idle(self, limit: float | timedelta = timedelta(days=30)) -> float:
        """Move on to deadline after deadline until none is left; return the seconds that have passed.

        Raises RuntimeError where there are still deadlines after `limit` (seconds or `timedelta`).
        """
        began = self._now
        end = began + seconds(limit, "limit")
        self._rest()
        while self._step(end):
            self._rest()
        self._goal_ns = max(self._goal_ns, round(self._now * 1e9))
        with self._changed:
            following = self._next()
        if following is not None:
            ahead = following - began
            raise RuntimeError(
                f"not idle after {limit}: the next deadline is {ahead:g} s after the beginning"
            )
        return self._now - began

    async def advance_async(self, by: float | timedelta) -> None:
        """Move on as `advance` does, and let the running event loop come to rest too before each step."""
        target = self._aim(by)
        await self._rest_async()
        while self._step(target + SLACK):
            await self._rest_async()
        self._arrive(target)

    def jump(self) -> None:
        """Go on to the next deadline, if time jumps by itself and the library's threads are at rest now."""
        with self._changed:
            ready = self._auto and not self._threads.running(threading.current_thread())
        if ready:
            self._step(float("inf"))

    # How it moves.

    def _aim(self, by: float | timedelta) -> float:
        distance = seconds(by, "the time to advance by")
        with self._changed:
            now_ns = round(self._now * 1e9)
            if now_ns - self._goal_ns > 2e9 * SLACK:  # time has moved by itself
                self._goal_ns = now_ns
            self._goal_ns += round(distance * 1e9)
            return self._goal_ns / 1e9

    def _arrive(self, target: float) -> None:
        with self._changed:
            self._now = max(self._now, target)

    def _step(self, limit: float) -> bool:
        """Let happen what is next, if it is not after `limit`."""
        with self._changed:
            following = self._next()
            if following is None or following > limit:
                return False
            _, _, alarm = heappop(self._alarms)
            self._now = max(self._now, following)
            self._activity += 1
            alarm.awake = True
        if callable(alarm.callback):
            alarm.callback()
        elif alarm.condition is not None:
            with alarm.condition:
                alarm.condition.notify_all()
        return True

    def _rest(self) -> None:
        """Wait until all threads that were counted in wait, but for the caller."""
        self._rest_besides(threading.current_thread())

    def _rest_besides(self, me: threading.Thread) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: not self._threads.running(me), self._patience):
                names = ", ".join(self._threads.running(me))
                raise RuntimeError(
                    f"the clock cannot move: after {self._patience:g} s of real time there still runs {names}"
                )

    async def _rest_async(self) -> None:
        import asyncio  # noqa: PLC0415 - 30 ms that a test without asyncio need not pay

        me = threading.current_thread()
        turns = 0
        while turns < TURNS:
            before = self._activity
            await asyncio.sleep(0)
            with self._changed:
                busy = self._threads.running(me)
            if busy:
                await asyncio.to_thread(self._rest_besides, me)
            turns = turns + 1 if not busy and before == self._activity else 0

    # With the lock held.

    def _enter(self, alarm: Alarm, condition: threading.Condition) -> None:
        self._waiters.setdefault(condition, {})[alarm] = None
        slot = alarm.slot = self._threads.claim()
        if slot is not None:
            slot.alarm = alarm
        else:
            self._strangers[alarm] = None
        if alarm.deadline is not None:
            self._push(alarm)
        if self._auto and self._strangers and self._threads.helper is None:
            helper = threading.Thread(target=self._move_by_itself, name="redelivery-clock", daemon=True)
            self._threads.helper = helper
            helper.start()
        self._touch()

    def _leave(self, alarm: Alarm, condition: threading.Condition) -> None:
        # Also when an exception ended the wait.
        alarm.awake = True
        waiters = self._waiters[condition]
        del waiters[alarm]
        if not waiters:
            del self._waiters[condition]
        self._strangers.pop(alarm, None)
        if alarm.slot is not None:
            alarm.slot.alarm = None
        self._touch()

    def _push(self, alarm: Alarm) -> None:
        assert alarm.deadline is not None
        self._activity += 1
        heappush(self._alarms, (alarm.deadline, self._activity, alarm))
        self._changed.notify_all()

    def _touch(self) -> None:
        self._activity += 1
        self._changed.notify_all()

    def _next(self) -> float | None:
        while self._alarms and self._alarms[0][2].awake:
            heappop(self._alarms)
        return self._alarms[0][0] if self._alarms else None

    # By itself.

    def _move_by_itself(self) -> None:
        me = threading.current_thread()

        def ready() -> bool:
            if not self._strangers:
                return True
            asleep = not any(alarm.awake for alarm in self._strangers)
            return asleep and not self._threads.running(me) and self._next() is not None

        try:
            while True:
                with self._changed:
                    self._changed.wait_for(ready)
                    if not self._strangers:
                        self._threads.helper = (
                            # Before the lock is free: the next stranger needs another.
                            None
                        )
                        return
                self._step(float("inf"))
        finally:
            self._threads.helper = None if self._threads.helper is me else self._threads.helper

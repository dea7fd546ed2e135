"""Clock that a test moves: a week of back-off passes in milliseconds, always in the same order."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from typing import TYPE_CHECKING
from weakref import WeakSet

from redelivery.core.option_values import seconds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redelivery.clock import Callback, Cancel

__all__ = ["ManualClock"]


# ---- Clock threads ---------------------------------------------------------------------------------------
# Threads that a manual clock waits for before it moves.


class Alarm:
    """Event at `deadline` (None: only when notified): a waiter is woken, or a callback is called."""

    __slots__ = ("awake", "callback", "condition", "deadline", "slot")

    def __init__(self, deadline: float | None) -> None:
        self.deadline = deadline
        self.awake = False  # woken, called or cancelled
        self.condition: threading.Condition | None = None
        self.callback: object = None
        self.slot: Slot | None = None


class Slot:
    """One counted thread.

    The code that starts a thread counts it before the start: it never runs uncounted. The thread of a slot is
    known when it waits for the first time: it was not alive when the slot was made. If several slots fit, the
    thread gets the newest one, because an older slot may belong to a thread that started earlier and has not
    waited yet.
    """

    __slots__ = ("alarm", "before", "maker", "owner")

    def __init__(self) -> None:
        self.maker = threading.current_thread()
        self.before: WeakSet[threading.Thread] = WeakSet(threading.enumerate())
        self.owner: threading.Thread | None = None
        self.alarm: Alarm | None = None  # what the thread waits for

    @property
    def waiting(self) -> bool:
        return self.alarm is not None and not self.alarm.awake


class Threads:
    """Counted threads. Guarded by the clock's lock."""

    def __init__(self) -> None:
        self._slots: list[Slot] = []
        # The clock's own thread. The clock does not wait for it.
        self.helper: threading.Thread | None = None

    def attach(self) -> None:
        self._slots.append(Slot())

    def detach(self) -> None:
        """Stop counting the calling thread, or one that it has counted and not started."""
        me = threading.current_thread()

        def fit(slot: Slot) -> int:
            if slot.owner is not None:
                return 0 if slot.owner is me else 4
            if me not in slot.before:
                return 1
            return 2 if slot.maker is me else 3

        best = min(reversed(self._slots), key=fit, default=None)
        if best is not None and fit(best) < 4:
            self._slots.remove(best)

    def claim(self) -> Slot | None:
        """Return the slot of the calling thread; None: the thread is not counted."""
        me = threading.current_thread()
        free = None
        for slot in self._slots:
            if slot.owner is me:
                return slot
            if slot.owner is None and me not in slot.before:
                free = slot
        if free is not None:
            free.owner = me
        return free

    def running(self, besides: threading.Thread) -> Iterable[str]:
        """Return the names of the counted threads that do not wait, without one thread."""
        found: list[str] = []
        for slot in self._slots:
            if slot.waiting or slot.owner is besides:
                continue
            if slot.owner is not None:
                found.append(slot.owner.name)
            else:
                found += self._starting(slot)
        return found

    def _starting(self, slot: Slot) -> list[str]:
        """Return the name of the thread that may belong to an unclaimed slot; empty: it has not started."""
        known = {other.owner for other in self._slots} | {self.helper}
        return [t.name for t in threading.enumerate() if t not in slot.before and t not in known][:1]


# ---- Manual clock ----------------------------------------------------------------------------------------

START = datetime(2025, 1, 1, tzinfo=UTC)
# Seconds. Rounding errors of sums are smaller: ten times `advance(0.1)` must reach 1.0.
SLACK = 1e-6
# Turns of an event loop without activity, after which it counts as idle.
TURNS = 25


class ManualClock:
    """Clock that stands still until it is moved. Pass it as `connect(..., clock=clock)`.

    `advance` goes from deadline to deadline. At each it wakes the threads that wait for it, or makes the
    calls that are due, on the thread that advances. Before the next deadline it waits until all threads of
    the library wait.

    Args:
        start: Time of day at the beginning: an aware datetime, or seconds since the Unix epoch. Default
            2025-01-01 UTC.
        auto_advance: True: time jumps to the next deadline by itself while the library's threads wait and
            another thread waits, too, as a test does in `consumer.receive(timeout=3600)`. Default False.
        patience: Seconds of real time to wait for the library's threads. Default 10. If they still run then,
            perhaps because a handler hangs, `advance` raises RuntimeError.
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
        # Time that `advance` was asked to reach, without rounding errors.
        self._goal_ns = round(self._now * 1e9)
        self._changed = threading.Condition(threading.Lock())  # guards all attributes below
        self._threads = Threads()
        self._alarms: list[tuple[float, int, Alarm]] = []
        self._waiters: dict[threading.Condition, dict[Alarm, None]] = {}
        # Waits of threads that are not counted.
        self._strangers: dict[Alarm, None] = {}
        self._activity = 0  # grows with each event

    # Called by the library: `redelivery.clock.Clock`.

    def monotonic(self) -> float:
        """Return the seconds of the steady clock."""
        return self._now

    def time(self) -> float:
        """Return the seconds since the Unix epoch."""
        return self._now + self._offset

    def wait(self, condition: threading.Condition, timeout: float | None) -> None:
        """Wait until `notify`, or until `timeout` seconds have been advanced, with the condition's lock held.

        Args:
            condition: Condition to wait for.
            timeout: Seconds; None: for ever.
        """
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
        """Wake this number of threads that wait for a condition, with its lock held. They count as running."""
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
        """Call a function when `delay` seconds have been advanced, on the thread that advances.

        Args:
            delay: Seconds until the call.
            callback: Function without arguments.

        Returns:
            Function that cancels the call.
        """
        alarm = Alarm(self._now + max(0.0, delay))
        alarm.callback = callback
        with self._changed:
            self._push(alarm)

        def cancel() -> None:
            alarm.awake = True

        return cancel

    def attach(self) -> None:
        """Count one more thread: the caller is about to start it."""
        with self._changed:
            self._threads.attach()

    def detach(self) -> None:
        """Stop counting the calling thread, which is about to end."""
        with self._changed:
            self._threads.detach()
            self._touch()

    # Called by a test.

    def advance(self, by: float | timedelta) -> None:
        """Move on, deadline after deadline, and return when all threads of the library wait.

        Args:
            by: Seconds, or a timedelta.

        Raises:
            RuntimeError: A thread of the library still runs after `patience` seconds of real time.
            ConfigurationError: `by` is not a duration.
        """
        target = self._aim(by)
        self._rest()
        while self._step(target + SLACK):
            self._rest()
        self._arrive(target)

    def run_until_idle(self, limit: float | timedelta = timedelta(days=30)) -> float:
        """Move on, deadline after deadline, until there is none.

        Args:
            limit: Seconds, or a timedelta, to move at most. Default 30 days.

        Returns:
            The seconds that have passed.

        Raises:
            RuntimeError: There are still deadlines after `limit`, or a thread of the library still runs after
                `patience` seconds of real time.
            ConfigurationError: `limit` is not a duration.
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
        """Move on as `advance` does, and wait before each step until the running event loop is idle, too.

        Args:
            by: Seconds, or a timedelta.

        Raises:
            RuntimeError: A thread of the library still runs after `patience` seconds of real time.
            ConfigurationError: `by` is not a duration.
        """
        target = self._aim(by)
        await self._rest_async()
        while self._step(target + SLACK):
            await self._rest_async()
        self._arrive(target)

    def jump(self) -> None:
        """Move to the next deadline, if `auto_advance` is set and the library's threads wait now."""
        with self._changed:
            ready = self._auto and not self._threads.running(threading.current_thread())
        if ready:
            self._step(float("inf"))

    # Moving.

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
        """Go to the next deadline and do what is due there; False: it is after `limit`, or there is none."""
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
        """Wait until all counted threads wait, without the calling one."""
        self._rest_besides(threading.current_thread())

    def _rest_besides(self, me: threading.Thread) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: not self._threads.running(me), self._patience):
                names = ", ".join(self._threads.running(me))
                raise RuntimeError(
                    f"the clock cannot move: after {self._patience:g} s of real time these threads still run: {names}"
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
        # Also if an exception ended the wait.
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

    # Moving by itself.

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
                            # Before the lock is released: the next uncounted thread needs another helper.
                            None
                        )
                        return
                self._step(float("inf"))
        finally:
            self._threads.helper = None if self._threads.helper is me else self._threads.helper

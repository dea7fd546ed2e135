"""Clock that a test moves."""

from __future__ import annotations

import asyncio
import re
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

import redelivery
from redelivery.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery.testing import MemoryBroker


class Sleeper:
    """Thread of the library's kind: counted before its start, it waits by the clock and records when it wakes."""

    def __init__(
        self, clock: ManualClock, *delays: float | None, then: Callable[[], object] = lambda: None
    ) -> None:
        self.clock = clock
        self.condition = threading.Condition()
        self.woken: list[float] = []
        self._delays = delays
        self._then = then
        clock.attach()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        for delay in self._delays:
            with self.condition:
                self.clock.wait(self.condition, delay)
            self.woken.append(self.clock.monotonic())
            self._then()
        self.clock.detach()

    def end(self) -> Sleeper:
        self.thread.join(60)
        assert not self.thread.is_alive()
        return self


def test_it_stands_still() -> None:
    """The steady time and the time of day stand still until the clock is moved."""
    clock = ManualClock(start=datetime(2030, 6, 1, tzinfo=UTC))
    assert clock.time() == datetime(2030, 6, 1, tzinfo=UTC).timestamp()
    began = clock.monotonic()
    clock.advance(timedelta(days=7))
    assert clock.monotonic() - began == 7 * 86400
    assert clock.time() == datetime(2030, 6, 8, tzinfo=UTC).timestamp()


def test_deadlines_come_in_order() -> None:
    """Each deadline is reached at its own time, earliest first, in whatever order they were set."""
    clock = ManualClock()
    began = clock.monotonic()
    seen: list[tuple[str, float]] = []
    for delay in (3.0, 1.0, 2.0):
        clock.call_later(delay, lambda d=delay: seen.append((f"{d}", clock.monotonic() - began)))
    clock.advance(2.5)
    assert seen == [("1.0", 1.0), ("2.0", 2.0)]
    clock.advance(0.5)
    assert seen[2:] == [("3.0", 3.0)]


def test_a_timer_set_on_the_way_is_reached_too() -> None:
    """A call that is set during an advance is made in the same advance if it is due."""
    clock = ManualClock()
    seen: list[float] = []

    def again() -> None:
        seen.append(clock.monotonic())
        clock.call_later(10.0, again)

    clock.call_later(10.0, again)
    clock.advance(35.0)
    assert len(seen) == 3


def test_cancelled_timers_do_not_run() -> None:
    """A cancelled call is not made; cancelling twice has no effect."""
    clock = ManualClock()
    seen: list[int] = []
    cancel = clock.call_later(1.0, lambda: seen.append(1))
    cancel()
    cancel()
    clock.advance(2.0)
    assert seen == []


def test_many_small_steps_reach_a_deadline() -> None:
    """Ten advances of a tenth of a second are a second, without rounding errors."""
    clock = ManualClock()
    seen: list[int] = []
    clock.call_later(1.0, lambda: seen.append(1))
    for _ in range(9):
        clock.advance(0.1)
    assert seen == []
    clock.advance(0.1)
    assert seen == [1]


def test_threads_come_to_rest_between_deadlines() -> None:
    """Each waiting thread wakes at its own deadline, and waits again before the clock moves on."""
    clock = ManualClock()
    began = clock.monotonic()
    fast, slow = Sleeper(clock, 1.0, 1.0, 1.0), Sleeper(clock, 2.5)
    clock.advance(2.0)
    assert [at - began for at in fast.woken] == [1.0, 2.0]
    assert slow.woken == []
    clock.advance(1.0)
    assert [at - began for at in fast.end().woken] == [1.0, 2.0, 3.0]
    assert [at - began for at in slow.end().woken] == [2.5]


def test_notified_threads_run_before_the_clock_moves() -> None:
    """A notified thread counts as running at once: the clock waits for it."""
    clock = ManualClock()
    began = clock.monotonic()
    sleeper = Sleeper(clock, None, 5.0)
    clock.advance(1.0)
    with sleeper.condition:
        clock.notify(sleeper.condition)
    clock.advance(10.0)
    assert [at - began for at in sleeper.end().woken] == [1.0, 6.0]


def test_notify_wakes_as_many_as_told() -> None:
    """One notification wakes the thread that has waited longest; the others wait on."""
    clock = ManualClock()
    condition = threading.Condition()
    order: list[int] = []

    def waiter(number: int) -> None:
        with condition:
            clock.wait(condition, None)
        order.append(number)
        clock.detach()

    threads = []
    for number in range(3):
        clock.attach()
        threads.append(threading.Thread(target=waiter, args=(number,), daemon=True))
        threads[-1].start()
        clock.advance(0)  # it waits now
    with condition:
        clock.notify(condition)
    clock.advance(0)
    assert order == [0]
    with condition:
        clock.notify(condition, 2)
    for thread in threads:
        thread.join(60)
    assert sorted(order) == [0, 1, 2]


def test_a_thread_that_does_not_rest_is_told() -> None:
    """A thread that hangs in real time is named by the clock's error."""
    clock = ManualClock(patience=0.05)
    hang = threading.Event()
    sleeper = Sleeper(clock, 1.0, then=hang.wait)
    with pytest.raises(RuntimeError, match=re.escape(f"these threads still run: {sleeper.thread.name}")):
        clock.advance(2.0)
    hang.set()
    sleeper.end()


def test_run_until_idle() -> None:
    """`run_until_idle` reaches all deadlines, however far away, and returns the time passed."""
    clock = ManualClock()
    sleeper = Sleeper(clock, 3600.0, 86400.0)
    assert clock.run_until_idle() == 90000.0
    sleeper.end()
    assert clock.run_until_idle() == 0.0


def test_run_until_idle_has_a_limit() -> None:
    """`run_until_idle` raises after its limit if deadlines go on for ever."""
    clock = ManualClock()
    sleeper = Sleeper(clock, 100.0)
    with pytest.raises(RuntimeError, match="the next deadline is 100 s after the beginning"):
        clock.run_until_idle(limit=10)
    clock.advance(100)
    sleeper.end()


def test_time_is_not_moved_back() -> None:
    """The clock moves forwards only."""
    with pytest.raises(ValueError, match="0 or more, or a timedelta, not -1"):
        ManualClock().advance(-1)


def test_by_itself_it_jumps_when_the_test_waits() -> None:
    """A wait of the test's own thread with `auto_advance` returns at once, an hour later.

    All earlier deadlines are reached before.
    """
    clock = ManualClock(auto_advance=True)
    began = clock.monotonic()
    sleeper = Sleeper(clock, 60.0)
    condition = threading.Condition()
    with condition:
        clock.wait(condition, 3600.0)
    assert clock.monotonic() - began == 3600.0
    assert [at - began for at in sleeper.end().woken] == [60.0]


def test_by_itself_it_stands_still_while_the_test_runs() -> None:
    """No time passes with `auto_advance` while the test does not wait."""
    clock = ManualClock(auto_advance=True)
    sleeper = Sleeper(clock, 60.0)
    clock.advance(0)
    assert sleeper.woken == []
    clock.advance(60)
    sleeper.end()


def test_a_wait_of_no_time_returns() -> None:
    """A wait with a timeout of zero returns at once."""
    clock = ManualClock()
    condition = threading.Condition()
    with condition:
        clock.wait(condition, 0.0)
    assert clock.run_until_idle() == 0.0


def test_the_event_loop_comes_to_rest_too() -> None:
    """Tasks run between the deadlines, in order, while a coroutine advances the clock."""
    clock = ManualClock()
    began = clock.monotonic()
    seen: list[float] = []

    async def ticks() -> None:
        loop = asyncio.get_running_loop()
        for _ in range(3):
            woken = asyncio.Event()
            clock.call_later(60.0, lambda woken=woken: loop.call_soon_threadsafe(woken.set))
            await woken.wait()
            seen.append(clock.monotonic() - began)

    async def main() -> None:
        task = asyncio.create_task(ticks())
        await clock.advance_async(timedelta(minutes=2, seconds=59))
        assert seen == [60.0, 120.0]
        await clock.advance_async(1)
        await task

    asyncio.run(main())
    assert seen == [60.0, 120.0, 180.0]


def test_a_week_of_back_off_in_a_listener(
    redelivery_broker: MemoryBroker, redelivery_clock: ManualClock
) -> None:
    """The fixtures show a handler failing over a week, at the policy's times, without waiting."""
    policy = redelivery.RedeliveryPolicy.from_delays(
        [timedelta(hours=1), timedelta(days=1), timedelta(days=6)]
    )
    began = redelivery_clock.monotonic()
    seen: list[float] = []

    def handle(message: redelivery.Message) -> None:
        seen.append((redelivery_clock.monotonic() - began) / 3600)
        raise ValueError(message.text)

    policies = redelivery.RedeliveryPolicyMap({"orders": policy})
    with redelivery.connect(redelivery_broker.uri, policies=policies, clock=redelivery_clock) as connection:
        connection.listen("orders", handle)
        connection.start()
        redelivery_broker.send("orders", "bad")
        redelivery_clock.advance(timedelta(days=8))
    assert seen == [0.0, 1.0, 25.0, 169.0]
    (letter,) = redelivery_broker.dead_letters()
    assert (letter.cause, letter.original_destination) == ("ValueError: bad", "queue://orders")


def test_a_receiver_in_the_tests_own_thread(
    redelivery_broker: MemoryBroker, redelivery_clock: ManualClock
) -> None:
    """A test that receives in its own thread need not move the clock."""
    with redelivery.connect(redelivery_broker.uri, clock=redelivery_clock) as connection:
        consumer = connection.consumer("orders")
        redelivery_broker.send("orders", "bad")
        deliveries = 0
        while (message := consumer.receive(timeout=3600)) is not None:
            deliveries += 1
            message.fail("no")
    assert deliveries == 7
    assert redelivery_broker.dead_letters()[0].cause == "no"

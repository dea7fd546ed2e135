"""Wake-ups of tasks that wait while the breaker is open."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

import redelivery
import redelivery_memory.adapter
from redelivery import Breaker
from redelivery.testing import ManualClock, MemoryBroker


async def outage(broker: MemoryBroker, clock: ManualClock, ramp: int) -> tuple[int, int]:
    """Return how many handlers run at a time in the ramp, or after it, and the number of messages left."""
    up, probe, enough, running, peak = False, asyncio.Event(), asyncio.Event(), 0, 0
    done = 0

    async def handle(_: redelivery.Message) -> None:
        nonlocal running, peak, done
        if not up:
            raise ConnectionError("down")
        # Meanwhile the other tasks poll, and get no message.
        await probe.wait()
        if done >= 2:
            running += 1
            peak = max(peak, running)
            await enough.wait()
            running -= 1
        done += 1

    breaker = Breaker(failures=4, messages=2, ramp=ramp)
    async with redelivery.connect_async(broker.uri, clock=clock, breaker=breaker) as connection:
        connection.listen("orders", handle, workers=4)
        await connection.start()
        await clock.advance_async(0.5)
        up = True
        await clock.advance_async(3)
        probe.set()
        await clock.advance_async(0.01)
        found = peak
        enough.set()
        await clock.advance_async(3)
        return found, broker.depth("orders")


@pytest.mark.parametrize(("ramp", "most"), [(2, 4), (8, 3)])
def test_tasks_are_woken_when_more_may_run(monkeypatch: pytest.MonkeyPatch, ramp: int, most: int) -> None:
    """After two successes all four workers run if the breaker is closed, three in the ramp; no arrival is needed."""
    # Without releases, so that all messages stay here.
    able = replace(redelivery_memory.CAPABILITIES, release=False)
    monkeypatch.setattr(redelivery_memory.adapter, "CAPABILITIES", able)
    clock = ManualClock()
    with MemoryBroker(clock=clock) as broker:
        for number in range(30):
            broker.send("orders", str(number))
        assert asyncio.run(outage(broker, clock, ramp)) == (most, 0)

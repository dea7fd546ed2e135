"""Connections with asyncio on real brokers."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

import redelivery
from integration.eventually import SLACK
from integration.work import POLICY

if TYPE_CHECKING:
    from integration.brokers import Broker
    from integration.java_client import JavaClient

DELAY = 0.3
POLICIES = redelivery.RedeliveryPolicyMap(
    default=POLICY(maximum_redeliveries=1, initial_redelivery_delay=DELAY)
)


async def tick() -> None:
    """Wait 10 ms on the event loop."""
    await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.01)


@pytest.mark.own_broker("reads its dead-letter queue")
def test_consume_fail_poison_and_send(broker: Broker, java: JavaClient, unique_queue: str) -> None:
    """One message succeeds, one fails once, one always; the event loop runs while they are parked."""
    seen: list[tuple[str, float]] = []
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            await tick()
            beats += 1

    async def consume() -> None:
        pulse = asyncio.create_task(beat())
        async with redelivery.connect_async(broker.uri(), policies=POLICIES) as connection:
            for body in ("good", "once", "bad"):
                await connection.send(unique_queue, body, headers={"queue": unique_queue}, persistent=False)
            consumer = await connection.consumer(unique_queue)
            async for message in consumer:
                async with message:
                    seen.append((message.text, time.monotonic()))
                    first = [body for body, _ in seen].count(message.text) == 1
                    if message.text == "bad" or (message.text == "once" and first):
                        raise ValueError(message.text)
                if len(seen) == 5:
                    break
            while connection.report().poisoned < 1:  # bounded by the timeout below
                await tick()
        pulse.cancel()

    asyncio.run(asyncio.wait_for(consume(), 60))
    assert sorted(body for body, _ in seen) == ["bad", "bad", "good", "once", "once"]
    for body in ("once", "bad"):
        first, second = (at for found, at in seen if found == body)
        assert DELAY <= second - first <= DELAY + SLACK
    assert beats >= 10, "the loop was never blocked for long"
    (dead,) = java.drain(broker.dead_letter_queue, selector=f"queue = '{unique_queue}'", expected=1)
    assert (dead.body, dead.properties["redeliveryCause"]) == (b"bad", "ValueError: bad")
    assert java.count(unique_queue) == 0

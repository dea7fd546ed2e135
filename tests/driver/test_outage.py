"""asyncio during an outage: calls that wait for the connection hold no thread."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

import redelivery
from redelivery import TransportError
from redelivery.testing import ManualClock, MemoryBroker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

PATIENCE = 10.0  # real seconds
MANY = 40


def in_an_outage(scenario: Callable[[redelivery.AsyncConnection, MemoryBroker, ManualClock], Any]) -> None:
    """Run a scenario on a loop whose executor has one thread, with a connection that is down."""

    async def main() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        async with redelivery.connect_async(broker.uri, clock=clock) as connection:
            broker.refuse_connections()
            broker.cut()
            await asyncio.wait_for(scenario(connection, broker, clock), PATIENCE)

    clock = ManualClock()
    with MemoryBroker(clock=clock) as broker:
        asyncio.run(main())


def started(*calls: Awaitable[Any]) -> list[asyncio.Future[Any]]:
    """Return the calls as tasks."""
    return [asyncio.ensure_future(call) for call in calls]


def test_sends_hold_no_thread() -> None:
    """Sends that wait for the connection leave the executor's only thread free; then all are sent."""

    async def scenario(
        connection: redelivery.AsyncConnection, broker: MemoryBroker, clock: ManualClock
    ) -> None:
        sends = started(*(connection.send("orders", "x") for _ in range(MANY)))
        await clock.advance_async(1)
        assert await asyncio.to_thread(lambda: "free") == "free"
        assert not any(send.done() for send in sends)
        broker.accept_connections()
        await clock.advance_async(2)
        assert len(set(await asyncio.gather(*sends))) == MANY
        assert broker.depth("orders") == MANY

    in_an_outage(scenario)


def test_consumers_hold_no_thread() -> None:
    """Consumers that are made during an outage leave the executor's only thread free."""

    async def scenario(
        connection: redelivery.AsyncConnection, broker: MemoryBroker, clock: ManualClock
    ) -> None:
        made = started(connection.consumer("orders"), connection.consumer("others"))
        await clock.advance_async(1)
        assert await asyncio.to_thread(lambda: "free") == "free"
        broker.accept_connections()
        await clock.advance_async(2)
        broker.send("others", "a")
        message = await (await made[1]).receive(0)
        assert message is not None
        await made[0]

    in_an_outage(scenario)


def test_closing_ends_the_wait() -> None:
    """Closing the connection ends all waiting calls at once, with an error."""

    async def scenario(
        connection: redelivery.AsyncConnection, broker: MemoryBroker, clock: ManualClock
    ) -> None:
        waiting = started(connection.send("orders", "x"), connection.consumer("orders"))
        await clock.advance_async(1)
        await connection.close()
        for call in waiting:
            with pytest.raises(TransportError, match="closed"):
                await call

    in_an_outage(scenario)


def test_giving_up_waiting_leaves_nothing() -> None:
    """A send that is cancelled during the outage is not sent afterwards."""

    async def scenario(
        connection: redelivery.AsyncConnection, broker: MemoryBroker, clock: ManualClock
    ) -> None:
        (send,) = started(connection.send("orders", "x"))
        await clock.advance_async(1)
        send.cancel()
        with pytest.raises(asyncio.CancelledError):
            await send
        assert not connection._driver._standing
        broker.accept_connections()
        await clock.advance_async(2)
        assert broker.depth("orders") == 0

    in_an_outage(scenario)

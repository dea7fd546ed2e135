"""Handlers of an asyncio connection while it closes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import redelivery

if TYPE_CHECKING:
    from redelivery.testing import MemoryBroker


def test_a_handler_that_swallows_its_cancellation_gets_no_other_message(
    redelivery_broker: MemoryBroker,
) -> None:
    """A handler that swallows its cancellation gets no further message during the close."""
    handled: list[str] = []
    for number in range(20):
        redelivery_broker.send("orders", str(number))

    async def scenario() -> None:
        began, never = asyncio.Event(), asyncio.Event()

        async def handle(message: redelivery.Message) -> None:
            began.set()
            try:
                if not handled:
                    await never.wait()
            except asyncio.CancelledError:
                pass
            handled.append(message.text)

        async with redelivery.connect_async(redelivery_broker.uri) as connection:
            connection.listen("orders", handle)
            await connection.start()
            await began.wait()

    asyncio.run(scenario())
    assert handled == ["0"]
    assert redelivery_broker.depth("orders") == 19

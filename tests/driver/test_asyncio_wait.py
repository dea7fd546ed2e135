"""Errors for a task that waits for a delivery."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import redelivery
from redelivery.errors import AdapterError

if TYPE_CHECKING:
    from redelivery.testing import MemoryBroker


def test_a_consumer_that_stops_between_a_look_and_its_end_raises_why(
    redelivery_broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that stops a consumer just after a task has polled it is raised in that task."""

    async def main() -> None:
        async with redelivery.connect_async(redelivery_broker.uri) as connection:
            consumer = await connection.consumer("orders")
            dispatcher = consumer._dispatcher
            poll = dispatcher.poll

            def stopped_after(*arguments: Any) -> Any:
                monkeypatch.setattr(dispatcher, "poll", poll)
                looked = poll(*arguments)
                dispatcher.stop(AdapterError("the broker ended the consumer"))
                return looked

            monkeypatch.setattr(dispatcher, "poll", stopped_after)
            with pytest.raises(AdapterError, match="the broker ended the consumer"):
                await consumer.receive(timeout=0)

    asyncio.run(main())

"""Handlers that cancel or end their worker: always logged, and their message is released."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

import redelivery
from redelivery import RedeliveryPolicy, RedeliveryPolicyMap

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redelivery import Message
    from redelivery.testing import MemoryBroker


async def cancels_itself(message: Message) -> None:
    """Cancel the worker's own task."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.Event().wait()
    raise AssertionError(message)


def test_a_handler_that_cancels_its_own_worker_ends_the_consumer(
    redelivery_broker: MemoryBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """A handler that cancels its own worker ends the consumer; `run()` raises that, and the message is released."""

    async def main() -> None:
        async with redelivery.connect_async(redelivery_broker.uri) as connection:
            connection.listen("orders", cancels_itself)
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(connection.run(), 60)

    for text in ("bad", "good"):
        redelivery_broker.send("orders", text)
    asyncio.run(main())
    assert [message.text for message in redelivery_broker.messages("orders")] == ["bad", "good"]
    assert "a worker has ended (CancelledError); its consumer stops" in caplog.text


def test_a_swallowed_cancellation_does_not_excuse_the_next_message(redelivery_broker: MemoryBroker) -> None:
    """A handler may swallow a cancellation of its worker; a later message that awaits what was cancelled is charged."""

    async def swallows(message: Message) -> None:
        task = asyncio.current_task()
        assert task is not None
        if message.text == "good":
            raise asyncio.CancelledError
        task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    async def main() -> redelivery.Report:
        once = RedeliveryPolicyMap(default=RedeliveryPolicy(maximum_redeliveries=0))
        async with redelivery.connect_async(redelivery_broker.uri, policies=once) as connection:
            connection.listen("orders", swallows)
            return await asyncio.wait_for(connection.run(until_idle=0.05), 60)

    for text in ("bad", "good"):
        redelivery_broker.send("orders", text)
    assert asyncio.run(main()) == redelivery.Report(accepted=1, poisoned=1)
    assert [letter.cause for letter in redelivery_broker.dead_letters()] == ["CancelledError"]


def test_a_generator_that_refuses_to_be_closed_keeps_no_message(redelivery_broker: MemoryBroker) -> None:
    """A generator that raises when it is closed has its message released."""

    def begun() -> Iterator[int]:
        try:
            yield 1
        finally:
            raise SystemExit("not now")

    def handler(_: Message) -> Iterator[int]:
        generator = begun()
        next(generator)
        return generator

    redelivery_broker.send("orders", "bad")
    with redelivery.connect(redelivery_broker.uri) as connection:
        connection.listen("orders", handler)
        with pytest.raises(redelivery.ConfigurationError, match="returned a generator"):
            connection.run()
        assert connection.report().running == 0

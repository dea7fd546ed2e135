"""Handlers that cancel or end their worker: always logged, and their message is released."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

import redelivery
from redelivery import RedeliveryPolicy, RedeliveryPolicyMap
from redelivery.driver.consumer.async_worker import _cancelled

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from redelivery import Message
    from redelivery.testing import MemoryBroker


async def cancels_itself(message: Message) -> None:
    """Cancel the worker's own task."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.Event().wait()
    raise AssertionError(message)


def connection_with_a_ledger(broker: MemoryBroker, folder: Path) -> redelivery.AsyncConnection:
    """Return a connection that allows two deliveries, counted in a file."""
    policies = RedeliveryPolicyMap(
        default=RedeliveryPolicy(maximum_redeliveries=1, initial_redelivery_delay=0.001)
    )
    return redelivery.connect_async(
        f"{broker.uri}?redelivery.ledger=sqlite:///{folder / 'ledger.db'}", policies=policies
    )


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


def test_with_a_ledger_such_a_message_is_charged(redelivery_broker: MemoryBroker, tmp_path: Path) -> None:
    """With a ledger the message of such a handler is dead after its redeliveries, and the next one is handled."""
    handled: list[str] = []

    async def handle(message: Message) -> None:
        if message.text == "bad":
            await cancels_itself(message)
        handled.append(message.text)

    async def start() -> None:
        async with connection_with_a_ledger(redelivery_broker, tmp_path) as connection:
            connection.listen("orders", handle)
            with suppress(asyncio.CancelledError):
                await asyncio.wait_for(connection.run(until_idle=0.05), 60)

    for text in ("bad", "good"):
        redelivery_broker.send("orders", text)
    for _ in range(3):
        asyncio.run(start())
    assert handled == ["good"]
    assert [letter.cause for letter in redelivery_broker.dead_letters()] == ["CancelledError"]


class Held:
    """A message, its run and its dispatcher: notes if it was charged."""

    keeps_counts, session_state, outcome = True, None, None

    def __init__(self) -> None:
        self.dispatcher = self
        self.task: asyncio.Task[None] | None = None
        self.ends: list[str] = []

    def wanted(self) -> bool:
        """The connection stays open."""
        return True

    def fail(self, _: BaseException) -> None:
        """Note it."""
        self.ends.append("charged")

    def give_back(self) -> None:
        """Note it."""
        self.ends.append("released")


@pytest.mark.parametrize(
    ("others", "charged"), [("none", False), ("alive", True), ("cancelled", False), ("both", False)]
)
def test_the_end_of_a_program_charges_no_message(others: str, charged: bool) -> None:
    """Only a worker that is cancelled alone of several tasks is charged: a loop or program that ends cancels all."""
    held: Any = Held()

    async def worker() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            _cancelled(held, error, held, None)
            raise

    async def waits() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        held.task = asyncio.create_task(worker())
        rest = [asyncio.create_task(waits()) for _ in range({"none": 0, "both": 2}.get(others, 1))]
        await asyncio.to_thread(int)  # a turn of the loop
        held.task.cancel()
        if others in ("cancelled", "both"):
            rest[0].cancel()
        if others == "alive":
            await asyncio.to_thread(int)  # a turn of the loop
            rest[0].cancel()
        # `main` itself ends: with the loop, as `asyncio.run` does it.

    asyncio.run(main())
    assert (held.ends[0] == "charged") == charged


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

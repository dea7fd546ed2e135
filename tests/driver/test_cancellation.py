"""Cancellation of tasks: which messages are released, kept, or accepted."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest
from tests.driver.twins import body_of
from tests.eventually import eventually

import redelivery
from redelivery import TransportError
from redelivery.testing import ManualClock, MemoryBroker

if TYPE_CHECKING:
    from redelivery import Message


def test_cancellation_inside_a_block_releases(redelivery_broker: MemoryBroker) -> None:
    """A task that is cancelled inside `async with message` releases the message, uncounted."""

    async def main() -> None:
        async with redelivery.connect_async(redelivery_broker.uri) as connection:
            consumer = await connection.consumer("orders")
            redelivery_broker.send("orders", "a")
            inside = asyncio.Event()
            held: list[Message] = []

            async def work() -> None:
                async for message in consumer:
                    async with message:
                        held.append(message)
                        inside.set()
                        await asyncio.Event().wait()

            task = asyncio.create_task(work())
            await inside.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert held[0].outcome == "released"
            again = await consumer.receive(0)
            assert again is not None
            assert (again.redelivery_count, again.broker_count) == (0, 0)

    asyncio.run(main())


def test_a_cancelled_receive_loses_nothing(redelivery_broker: MemoryBroker) -> None:
    """A cancelled `receive` loses nothing: the next call gets the message."""

    async def main() -> None:
        async with redelivery.connect_async(redelivery_broker.uri) as connection:
            consumer = await connection.consumer("orders")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(consumer.receive(), 0.01)
            redelivery_broker.send("orders", "a")
            assert body_of(await consumer.receive()) == "a"

    asyncio.run(main())


def test_a_cancelled_run_gives_everything_back(redelivery_broker: MemoryBroker) -> None:
    """Cancelling `run` cancels the handlers when the connection closes; the broker keeps their messages."""

    async def main() -> None:
        started = asyncio.Event()

        async def handle(message: Message) -> None:
            started.set()
            await asyncio.Event().wait()

        async with redelivery.connect_async(redelivery_broker.uri) as connection:
            redelivery_broker.send("orders", "a")
            connection.listen("orders", handle)
            run = asyncio.create_task(connection.run())
            await started.wait()
            run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await run
        assert connection.report() == redelivery.Report(released=1)

    asyncio.run(main())
    assert [held.delivered for held in redelivery_broker.messages("orders")] == [False]


@pytest.mark.parametrize("how", ["task", "future"])
def test_what_awaits_something_cancelled_has_failed(redelivery_broker: MemoryBroker, how: str) -> None:
    """A handler that awaits a cancelled task or future is charged at each delivery, and others are handled."""
    counts: list[int] = []

    async def handle(message: Message) -> None:
        if message.text == "bad":
            counts.append(message.delivery_count)
            loop = asyncio.get_running_loop()
            inner = loop.create_task(asyncio.Event().wait()) if how == "task" else loop.create_future()
            inner.cancel()
            await inner

    async def main() -> redelivery.Report:
        options = "?jms.redeliveryPolicy.maximumRedeliveries=1&jms.redeliveryPolicy.initialRedeliveryDelay=1"
        async with redelivery.connect_async(redelivery_broker.uri + options) as connection:
            for text in ("bad", "good"):
                redelivery_broker.send("orders", text)
            connection.listen("orders", handle)
            return await connection.run(until_idle=0.05)

    report = asyncio.run(main())
    assert counts == [1, 2]
    assert (report.accepted, report.redelivered, report.poisoned, report.released) == (1, 1, 1, 0)
    assert [letter.cause for letter in redelivery_broker.dead_letters()] == ["CancelledError"]


def test_a_cancelled_opening_leaves_nothing(redelivery_broker: MemoryBroker) -> None:
    """`async with` under a time-out leaves nothing: the connecting thread ends, and so does its connection."""
    reached, go_on = threading.Event(), threading.Event()

    def slow() -> TransportError:
        reached.set()
        assert go_on.wait(60)
        return TransportError("down")

    redelivery_broker.refuse_connections(slow)
    uri = f"failover:({redelivery_broker.uri})?startupMaxReconnectAttempts=-1&initialReconnectDelay=60000"

    async def main() -> None:
        opening = asyncio.ensure_future(redelivery.connect_async(uri).__aenter__())
        await asyncio.to_thread(reached.wait, 5)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        go_on.set()

    asyncio.run(main())
    assert redelivery_broker.connections == 0


def test_a_cancelled_consumer_leaves_no_trace() -> None:
    """A consumer whose `consumer` call is cancelled while the connection is down is not made later."""

    async def main(broker: MemoryBroker, clock: ManualClock) -> None:
        async with redelivery.connect_async(broker.uri, clock=clock) as connection:
            broker.refuse_connections()
            broker.cut()
            making = asyncio.ensure_future(connection.consumer("orders"))
            await clock.advance_async(1)
            making.cancel()
            with pytest.raises(asyncio.CancelledError):
                await making
            broker.accept_connections()
            await clock.advance_async(60)
            while connection._driver.dispatchers:
                await asyncio.to_thread(lambda: None)
            broker.send("orders", "a")
            assert not broker.messages("orders")[0].delivered

    clock = ManualClock()
    with MemoryBroker(clock=clock) as broker:
        asyncio.run(main(broker, clock))


def test_what_was_handled_is_not_lost_to_a_cancellation(redelivery_broker: MemoryBroker) -> None:
    """The last result of a worker that is cancelled between two messages is written."""
    from redelivery.driver.consumer.async_worker import TURN  # noqa: PLC0415

    async def main() -> None:
        handled = 0

        async def handle(message: Message) -> None:
            nonlocal handled
            handled += 1
            if handled == TURN:
                asyncio.get_running_loop().call_soon(closing.set)
                for listener in connection._listeners:
                    for worker in listener.runners:
                        asyncio.get_running_loop().call_soon(worker.task.cancel)

        closing = asyncio.Event()
        async with redelivery.connect_async(redelivery_broker.uri) as connection:
            for number in range(TURN + 10):
                redelivery_broker.send("orders", str(number))
            connection.listen("orders", handle, credit=1000)
            await connection.start()
            await closing.wait()
            # The connection did not ask for the cancellation.
            with pytest.raises(asyncio.CancelledError):
                await connection.wait()
        assert handled == TURN
        # No other worker runs: messages that were not dispatched are released.
        assert connection.report() == redelivery.Report(accepted=TURN, released=10)

    asyncio.run(main())
    assert redelivery_broker.depth("orders") == 10


class Work:
    """A plain handler, and one that returns the coroutine of an async one; it is begun and ended by the test."""

    def __init__(self) -> None:
        self.entered, self.go_on = threading.Event(), threading.Event()

    def plain(self, _: Message) -> None:
        """Return in the thread when the test says so."""
        self.entered.set()
        assert self.go_on.wait(60)

    def lazy(self, message: Message) -> object:
        """Return a coroutine, whose work is not done."""
        self.plain(message)
        return self.never()

    async def never(self) -> None:
        """Fail: nothing awaits it."""
        raise AssertionError


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("late", [False, True], ids=["ended", "running"])
@pytest.mark.parametrize("name", ["plain", "lazy"])
def test_a_thread_and_its_cancelled_worker(redelivery_broker: MemoryBroker, name: str, *, late: bool) -> None:
    """A handler that has ended in its thread is accepted; one that returned a coroutine is released, no error."""
    work = Work()

    async def main() -> redelivery.AsyncConnection:
        async with redelivery.connect_async(redelivery_broker.uri) as connection:
            redelivery_broker.send("orders", "a")
            connection.listen("orders", getattr(work, name))
            await connection.start()
            assert await asyncio.to_thread(work.entered.wait, 60)
            pool = connection._pool
            assert pool is not None
            if not late:
                work.go_on.set()
                # The loop stands still meanwhile, and does not yet know that the handler has ended.
                eventually(lambda: pool._idle == 1)
            await connection.close()
            work.go_on.set()
            await asyncio.to_thread(pool.shutdown)
        return connection

    connection = asyncio.run(main())
    assert connection.error is None
    accepted = name == "plain" and not late
    assert connection.report().accepted == accepted
    assert redelivery_broker.depth("orders") == (not accepted)

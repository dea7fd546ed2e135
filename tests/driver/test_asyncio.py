"""Behaviour on an event loop only: plain handlers in threads, and a busy loop."""

from __future__ import annotations

import asyncio
import functools
import threading
from typing import TYPE_CHECKING, Any

import redelivery
from redelivery.testing import MemoryBroker

if TYPE_CHECKING:
    from redelivery import Message


def test_plain_handlers_run_in_threads(redelivery_broker: MemoryBroker) -> None:
    """A plain handler that blocks does not block the loop; as many run at a time as there are workers."""

    async def main() -> None:
        together = threading.Barrier(3, timeout=60)
        loop_thread = threading.current_thread()
        threads = set()

        def handle(message: Message) -> None:
            threads.add(threading.current_thread())
            together.wait()
            if len(threads) == 3:
                connection.stop()

        async with redelivery.connect_async(redelivery_broker.uri) as connection:
            for body in ("a", "b", "c"):
                redelivery_broker.send("orders", body)
            connection.listen("orders", handle, workers=3)
            assert (await connection.run()).accepted == 3
        assert loop_thread not in threads

    asyncio.run(main())


def test_callables_around_asynchronous_functions(redelivery_broker: MemoryBroker) -> None:
    """A partial of an async function, and an object with an async call, are awaited."""
    calls: list[str] = []

    class Handler:
        async def __call__(self, message: Message) -> None:
            await asyncio.Event().wait() if message.text == "never" else None
            calls.append(message.text)

    async def handle(prefix: str, message: Message) -> None:
        calls.append(prefix + message.text)

    async def main() -> None:
        async with redelivery.connect_async(redelivery_broker.uri) as connection:
            connection.listen("one", Handler())
            connection.listen("two", functools.partial(handle, "x"))
            redelivery_broker.send("one", "a")
            redelivery_broker.send("two", "b")
            report = await connection.run(until_idle=0.02)
            assert report.accepted == 2

    asyncio.run(main())
    assert sorted(calls) == ["a", "xb"]


def test_a_busy_loop_does_not_stop_redelivery() -> None:
    """Redeliveries are on time while other callbacks, and a handler that never waits, keep the loop busy."""
    attempts: list[int] = []
    policies = "?jms.redeliveryPolicy.initialRedeliveryDelay=5&jms.redeliveryPolicy.redeliveryDelay=5"

    async def main(broker: MemoryBroker) -> None:
        loop = asyncio.get_running_loop()
        done = asyncio.Event()

        def spin() -> None:
            if not done.is_set():
                loop.call_soon(spin)

        async def fail_twice(message: Message) -> None:
            attempts.append(message.delivery_count)
            if len(attempts) < 3:
                raise ValueError("no")
            done.set()

        async def greedy(message: Message) -> None:
            if not done.is_set():
                broker.send("busy", "more")

        async with redelivery.connect_async(broker.uri + policies) as connection:
            broker.send("busy", "first")
            broker.send("orders", "a")
            connection.listen("busy", greedy)
            connection.listen("orders", fail_twice)
            await connection.start()
            spin()
            await done.wait()

    with MemoryBroker() as broker:
        asyncio.run(main(broker))
    assert attempts == [1, 2, 3]


def test_a_thread_that_still_runs_keeps_its_message(redelivery_broker: MemoryBroker) -> None:
    """Closing does not release a message whose plain handler still runs; the report counts it as running."""
    started, finish = threading.Event(), threading.Event()

    def handle(message: Message) -> None:
        started.set()
        finish.wait(60)

    async def main() -> None:
        async with redelivery.connect_async(redelivery_broker.uri) as connection:
            redelivery_broker.send("orders", "a")
            connection.listen("orders", handle)
            await connection.start()
            await asyncio.to_thread(started.wait, 60)
            assert (await connection.drain(timeout=0.01)).running == 1
        assert connection.report().released == 0
        assert "released" not in [step.action for step in redelivery_broker.history()]
        finish.set()

    asyncio.run(main())


def test_stop_from_another_thread(redelivery_broker: Any) -> None:
    """`stop` may be called from any thread, also after the loop has ended."""

    async def main() -> redelivery.AsyncConnection:
        async with redelivery.connect_async(redelivery_broker.uri) as connection:
            connection.listen("orders", _nothing)
            threading.Timer(0.01, connection.stop).start()
            assert await connection.run() == redelivery.Report()
        return connection

    async def _nothing(message: Message) -> None:
        """Handle nothing."""

    asyncio.run(main()).stop()

"""Plain handlers of an asyncio connection in virtual time: the clock waits for their threads."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.driver.gates import PATIENCE

import redelivery
from redelivery.driver.consumer.async_worker import HandlerThreads
from redelivery.testing import ManualClock, MemoryBroker

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery import Message

ROUNDS = 10


def plain(message: Message) -> None:
    """Fail for a bad message."""
    if message.text == "bad":
        raise ValueError


async def asynchronous(message: Message) -> None:
    """Fail for a bad message."""
    plain(message)


def lazy(message: Message) -> object:
    """Return a coroutine, which the connection awaits."""
    return asynchronous(message)


class Handler:
    """Object whose call is an async function."""

    async def __call__(self, message: Message) -> None:
        """Fail for a bad message."""
        plain(message)


async def handled(handler: Callable[[Message], Any], workers: int) -> tuple[int, int, int, int]:
    """Send a good and a bad message, pass a minute, and return what has become of them."""
    clock = ManualClock()
    with MemoryBroker(clock=clock) as broker:
        errors = redelivery.Classifier().poison(ValueError)
        async with redelivery.connect_async(broker.uri, errors=errors, clock=clock) as connection:
            connection.listen("orders", handler, workers=workers)
            await connection.start()
            for body in ("good", "bad"):
                await connection.send("orders", body)
            await clock.advance_async(60)
            report = connection.report()
            return report.accepted, report.poisoned, len(broker.dead_letters()), broker.depth("orders")


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    "handler",
    [plain, asynchronous, lazy, Handler()],
    ids=["plain", "async", "lazy", "object"],
)
def test_the_clock_waits_for_every_kind_of_handler(handler: Callable[[Message], Any], workers: int) -> None:
    """`advance_async` returns after the handlers have ended, whether they run in a thread or on the loop."""
    assert {asyncio.run(handled(handler, workers)) for _ in range(ROUNDS)} == {(1, 1, 1, 0)}


def test_an_advance_waits_for_a_handler_that_takes_real_time(
    redelivery_broker: MemoryBroker, redelivery_clock: ManualClock
) -> None:
    """`advance_async` does not return while a plain handler still runs in its thread."""
    entered, go_on = threading.Event(), threading.Event()

    def handle(_: Message) -> None:
        entered.set()
        assert go_on.wait(PATIENCE)

    async def main() -> None:
        async with redelivery.connect_async(redelivery_broker.uri, clock=redelivery_clock) as connection:
            connection.listen("orders", handle)
            await connection.start()
            redelivery_broker.send("orders", "a")
            advance = asyncio.create_task(redelivery_clock.advance_async(1))
            assert await asyncio.to_thread(entered.wait, PATIENCE)
            for _ in range(30):
                await asyncio.to_thread(threading.get_ident)
            assert not advance.done()
            go_on.set()
            await advance
            assert connection.report().accepted == 1

    asyncio.run(main())


def test_a_handler_that_hangs_stops_the_clock() -> None:
    """A plain handler that does not end is named by the clock's error, as on a connection with threads."""
    clock, entered, go_on = ManualClock(patience=0.05), threading.Event(), threading.Event()

    def handle(_: Message) -> None:
        entered.set()
        assert go_on.wait(PATIENCE)

    async def main(broker: MemoryBroker) -> None:
        async with redelivery.connect_async(broker.uri, clock=clock) as connection:
            connection.listen("orders", handle)
            await connection.start()
            broker.send("orders", "a")
            assert await asyncio.to_thread(entered.wait, PATIENCE)
            with pytest.raises(RuntimeError, match="these threads still run: redelivery-worker_0"):
                await clock.advance_async(1)
            go_on.set()

    with MemoryBroker(clock=clock) as broker:
        asyncio.run(main(broker))


def test_redeliveries_in_threads_come_at_their_times(
    redelivery_broker: MemoryBroker, redelivery_clock: ManualClock
) -> None:
    """A plain handler that fails is called again at the policy's times, and not later."""
    began, seen = redelivery_clock.monotonic(), list[float]()

    def handle(_: Message) -> None:
        seen.append(redelivery_clock.monotonic() - began)
        raise ValueError

    async def main() -> None:
        async with redelivery.connect_async(redelivery_broker.uri, clock=redelivery_clock) as connection:
            connection.listen("orders", handle)
            await connection.start()
            redelivery_broker.send("orders", "a")
            await redelivery_clock.advance_async(60)

    asyncio.run(main())
    assert seen == [0, 1, 2, 3, 4, 5, 6]


def test_calls_before_a_shutdown_are_made_and_later_ones_refused() -> None:
    """`shutdown` makes the calls that wait, ends the threads, and the clock no longer counts them."""
    clock, entered, go_on = ManualClock(patience=0.05), threading.Event(), threading.Event()
    threads = HandlerThreads(1, clock)

    def first() -> str:
        entered.set()
        assert go_on.wait(PATIENCE)
        return "first"

    calls = [threads.submit(first), threads.submit(lambda: "second")]
    assert entered.wait(PATIENCE)
    threads.shutdown(wait=False)
    with pytest.raises(RuntimeError, match="have ended"):
        threads.submit(first)
    go_on.set()
    threads.shutdown()
    assert [call.result(0) for call in calls] == ["first", "second"]
    clock.advance(1)


def test_a_thread_that_cannot_start_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call for which no thread can be started raises, and the clock still moves."""
    clock = ManualClock(patience=0.05)
    threads = HandlerThreads(1, clock)

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            threads.submit(int)
    # An uncounted thread, which the clock must not take for the one that has not started.
    go_on = threading.Event()
    threading.Thread(target=go_on.wait, args=(PATIENCE,), daemon=True).start()
    clock.advance(1)
    go_on.set()
    assert threads.submit(int).result(PATIENCE) == 0
    threads.shutdown()

"""Handlers that exceed their timeout."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

import redelivery
from redelivery import HandlerTimeout, RedeliveryPolicy, RedeliveryPolicyMap, SqliteLedger
from redelivery.ledger.marks import OtherMarks
from redelivery.testing import MemoryBroker

from .twins import threads_left

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from redelivery import Message
    from redelivery.testing import ManualClock

POLICIES = RedeliveryPolicyMap(default=RedeliveryPolicy(maximum_redeliveries=0))


@pytest.fixture
def real() -> Iterator[MemoryBroker]:
    """Return a broker in real time: a run checks its handlers by the machine's clock."""
    with MemoryBroker() as broker:
        yield broker


def test_a_thread_that_ends_too_late_has_failed(
    redelivery_broker: MemoryBroker, redelivery_clock: ManualClock
) -> None:
    """A thread that ends too late has failed, whatever its result; in time its own result counts."""
    took = {"in time": 4.0, "late": 6.0, "fails": 6.0}
    for body in took:
        redelivery_broker.send("orders", body)
    handled: list[str] = []

    def handle(message: Message) -> None:
        redelivery_clock.detach()  # as a thread that waits for something else
        redelivery_clock.advance(took[message.text])
        redelivery_clock.attach()
        handled.append(message.text)
        if len(handled) == 3:
            connection.stop()
        if message.text == "fails":
            raise ValueError("no")

    connection = redelivery.connect(redelivery_broker.uri, policies=POLICIES, clock=redelivery_clock)
    with connection:
        connection.listen("orders", handle, timeout=5.0)
        report = connection.run()
    assert (report.accepted, report.poisoned) == (1, 2)
    causes = {letter.text: letter.cause for letter in redelivery_broker.dead_letters()}
    assert causes == {"late": "HandlerTimeout: the handler took longer than 5 s", "fails": "ValueError: no"}


def after_a_minute(
    broker: MemoryBroker, clock: ManualClock, handle: Callable[[Message], Awaitable[None]]
) -> redelivery.Report:
    """Return the report of an async handler with a timeout of 5 s after a minute of virtual time."""

    async def main() -> redelivery.Report:
        async with redelivery.connect_async(broker.uri, policies=POLICIES, clock=clock) as connection:
            connection.listen("orders", handle, timeout=5.0)
            await connection.start()
            await clock.advance_async(60)
            return connection.report()

    return asyncio.run(main())


def test_an_async_handler_is_cancelled_and_charged(
    redelivery_broker: MemoryBroker, redelivery_clock: ManualClock
) -> None:
    """An async handler is cancelled and charged, also if it catches its cancellation; one in time is not disturbed."""
    for body in ("hang", "catch", "quick"):
        redelivery_broker.send("orders", body)

    async def handle(message: Message) -> None:
        if message.text == "quick":
            return
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if message.text == "hang":
                raise

    report = after_a_minute(redelivery_broker, redelivery_clock, handle)
    assert (report.accepted, report.poisoned) == (1, 2)
    causes = {letter.cause for letter in redelivery_broker.dead_letters()}
    assert causes == {"HandlerTimeout: the handler took longer than 5 s"}


def test_a_swallowed_cancellation_changes_no_timeout(
    redelivery_broker: MemoryBroker, redelivery_clock: ManualClock
) -> None:
    """A handler that swallowed a cancellation of its task does not change the timeout of a later one."""
    for body in ("swallow", "hang", "quick"):
        redelivery_broker.send("orders", body)
    handled: list[str] = []

    async def handle(message: Message) -> None:
        handled.append(message.text)
        if message.text == "swallow":
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
        elif message.text == "hang":
            await asyncio.Event().wait()

    report = after_a_minute(redelivery_broker, redelivery_clock, handle)
    assert handled == ["swallow", "hang", "quick"]
    assert (report.accepted, report.poisoned) == (2, 1)
    (letter,) = redelivery_broker.dead_letters()
    assert (letter.text, letter.cause) == ("hang", "HandlerTimeout: the handler took longer than 5 s")


def test_a_worker_that_is_cancelled_beside_its_timeout_ends(
    redelivery_broker: MemoryBroker, redelivery_clock: ManualClock
) -> None:
    """A worker that is cancelled at its handler's timeout ends; the message is released, and not charged."""

    async def handle(message: Message) -> None:
        task = asyncio.current_task()
        assert task is not None
        if message.text == "swallow":
            task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            return
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            # A cancellation by other code, in the same moment as the timeout.
            task.cancel()
            raise

    async def main() -> None:
        uri = redelivery_broker.uri
        async with redelivery.connect_async(uri, policies=POLICIES, clock=redelivery_clock) as connection:
            connection.listen("orders", handle, timeout=5.0)
            for body in ("swallow", "hang"):
                redelivery_broker.send("orders", body)
            run = asyncio.ensure_future(connection.run())
            await redelivery_clock.advance_async(5)
            with pytest.raises(asyncio.CancelledError):
                await run

    asyncio.run(main())
    assert [held.text for held in redelivery_broker.messages("orders")] == ["hang"]
    assert redelivery_broker.dead_letters() == []


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_thread_that_does_not_end_ends_the_run(
    real: MemoryBroker, tmp_path: Path, asynchronous: bool
) -> None:
    """A thread that exceeds twice its timeout ends the run with an error; the ledger's mark says that it hangs."""
    real.send("orders", "hang")
    ledger = SqliteLedger(tmp_path / "ledger.db")
    gate = threading.Event()

    def handle(_: Message) -> None:
        gate.wait()

    def run() -> None:
        with redelivery.connect(real.uri, ledger=ledger) as connection:
            connection.listen("orders", handle, timeout=0.02)
            connection.run(drain_timeout=0.05)

    async def run_async() -> None:
        async with redelivery.connect_async(real.uri, ledger=ledger) as connection:
            connection.listen("orders", handle, timeout=0.02)
            await connection.run(drain_timeout=0.05)

    try:
        with pytest.raises(
            HandlerTimeout, match=r"has not ended within 0.04 s, twice its timeout; its message is"
        ):
            asyncio.run(run_async()) if asynchronous else run()
        (other,) = tmp_path.glob("*-marks-*")
        assert [attempt.state for attempt in OtherMarks(other).attempts()] == ["hung"]
    finally:
        gate.set()
    assert real.depth("orders") == 1
    assert threads_left() == []
    assert ledger.in_use == asynchronous  # a closed event loop does not hear that the handler has ended

"""The watch over handlers with a time-out on an event loop, and in the threads of its pool."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest
from tests.driver.gates import PATIENCE

import redelivery
from redelivery import HandlerTimeout

if TYPE_CHECKING:
    from redelivery import Message
    from redelivery.testing import ManualClock, MemoryBroker


def test_an_async_handler_shows_where_it_waits(
    redelivery_broker: MemoryBroker, redelivery_clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """An async handler is logged once, with the innermost frames of its task, before it is cancelled."""

    async def inner() -> None:
        await asyncio.Event().wait()

    async def handle(_: Message) -> None:
        await inner()

    async def main() -> None:
        async with redelivery.connect_async(redelivery_broker.uri, clock=redelivery_clock) as connection:
            connection.listen("q", handle, timeout=5)
            await connection.start()
            redelivery_broker.send("q", "a")
            await redelivery_clock.advance_async(5)
            assert connection.health().live

    asyncio.run(main())
    late, failed = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "its handler has run for 5 s, its timeout; it is cancelled" in late.getMessage()
    assert "in inner\n    await asyncio.Event().wait()" in late.getMessage()
    assert "delivery 1 of 7 failed (HandlerTimeout" in failed.getMessage()


def test_an_async_handler_that_does_not_end_is_given_up(
    redelivery_broker: MemoryBroker, redelivery_clock: ManualClock
) -> None:
    """An async handler that swallows its cancellation is an error at twice its timeout, as in a thread."""
    ends = asyncio.Event()

    async def handle(_: Message) -> None:
        while not ends.is_set():
            try:
                await ends.wait()
            except asyncio.CancelledError:
                continue

    async def main() -> None:
        async with redelivery.connect_async(redelivery_broker.uri, clock=redelivery_clock) as connection:
            connection.listen("q", handle, timeout=5)
            await connection.start()
            redelivery_broker.send("q", "a")
            await redelivery_clock.advance_async(10)
            with pytest.raises(HandlerTimeout):
                await connection.wait()
            ends.set()

    asyncio.run(main())


def test_a_handler_that_blocks_its_loop_shows_where(
    redelivery_broker: MemoryBroker, redelivery_clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A handler that blocks its loop is logged by the watch, with the stack of the loop's thread."""

    async def handle(_: Message) -> None:
        thread = threading.Thread(target=redelivery_clock.advance, args=(10,))
        thread.start()
        thread.join(PATIENCE)

    async def main() -> None:
        async with redelivery.connect_async(redelivery_broker.uri, clock=redelivery_clock) as connection:
            connection.listen("q", handle, timeout=5)
            redelivery_broker.send("q", "a")
            with pytest.raises(HandlerTimeout):
                await connection.run()

    asyncio.run(main())
    assert any(", in handle\n" in record.getMessage() for record in caplog.records)


PROGRAM = """
import asyncio, threading, redelivery
async def main():
    async with redelivery.connect_async("memory://stuck") as connection:
        connection.listen("q", lambda _: threading.Event().wait(), timeout=0.05)
        await connection.send("q", "a")
        try:
            await connection.run(drain_timeout=60)
        except redelivery.HandlerTimeout:
            print("ended", flush=True)
asyncio.run(main())
"""


@pytest.mark.ci("a child process: 0.4 s")
def test_a_process_ends_although_a_handler_hangs() -> None:
    """A process ends although a plain handler of an asyncio connection hangs in its thread."""
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (ended.stdout, ended.returncode) == ("ended\n", 0)

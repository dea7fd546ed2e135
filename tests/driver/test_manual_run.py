"""`run` with a clock that a test moves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import redelivery
from redelivery import ConfigurationError
from redelivery.driver.connection import connection_end
from redelivery.testing import ManualClock, MemoryBroker

if TYPE_CHECKING:
    from redelivery import Message, Report


def failing(message: Message) -> None:
    raise ValueError(message.text)


async def run_async(broker: MemoryBroker, **options: Any) -> Report:
    async with redelivery.connect_async(broker.uri, **options) as connection:
        connection.listen("orders", failing)
        return await connection.run(until_idle=0.05)


def run(broker: MemoryBroker, **options: Any) -> Report:
    with redelivery.connect(broker.uri, **options) as connection:
        connection.listen("orders", failing)
        return connection.run(until_idle=0.05)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_clock_that_nobody_moves(monkeypatch: pytest.MonkeyPatch, asynchronous: bool) -> None:
    """`run(until_idle=)` with a clock that does not move raises, with the calls to use instead."""
    monkeypatch.setattr(connection_end, "STANDS", 0.05)
    with MemoryBroker(clock=ManualClock()) as broker:
        broker.send("orders", "bad")
        with pytest.raises(ConfigurationError, match=r"use start\(\) and clock.advance\(\)"):
            asyncio.run(run_async(broker)) if asynchronous else run(broker)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_clock_that_jumps_by_itself(asynchronous: bool) -> None:
    """With `auto_advance` `run` goes on until the dead letter, without waiting."""
    with MemoryBroker(clock=ManualClock(auto_advance=True)) as broker:
        broker.send("orders", "bad")
        report = asyncio.run(run_async(broker)) if asynchronous else run(broker)
        assert (report.redelivered, report.poisoned) == (6, 1)


def test_a_clock_jumps_while_as_many_are_parked_as_may_be() -> None:
    """Messages that wait for room behind parked ones do not hold `auto_advance` back."""
    with MemoryBroker(clock=ManualClock(auto_advance=True)) as broker:
        for number in range(5):
            broker.send("orders", f"bad {number}")
        with redelivery.connect(f"{broker.uri}?redelivery.maxParked=2") as connection:
            connection.listen("orders", failing)
            report = connection.run(until_idle=0.05)
        assert (report.redelivered, report.poisoned) == (30, 5)


def test_the_brokers_clock_is_taken() -> None:
    """A connection without a clock takes the manual clock of a broker in this process."""
    clock = ManualClock()
    with MemoryBroker(clock=clock) as broker, redelivery.connect(broker.uri) as connection:
        connection.listen("orders", failing)
        connection.start()
        broker.send("orders", "bad")
        clock.advance(6)
        assert [letter.cause for letter in broker.dead_letters()] == ["ValueError: bad"]

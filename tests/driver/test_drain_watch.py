"""Log lines of a drain, and the handlers that it waits for."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING

import pytest
from tests.driver.gates import PATIENCE, Gate, lines
from tests.driver.twins import SyncTwin, eventually
from tests.eventually import eventually as wait_for

import redelivery
from redelivery.testing import ManualClock, MemoryBroker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.driver.twins import Twin


@pytest.fixture
def gate(redelivery_clock: ManualClock) -> Iterator[Gate]:
    """Return a gate for handlers; it opens at the end of the test."""
    made = Gate(redelivery_clock)
    yield made
    made.open.set()


@pytest.fixture
def own(redelivery_broker: MemoryBroker, redelivery_clock: ManualClock) -> Iterator[SyncTwin]:
    """Return a threaded connection; all that it opened is closed after the test."""
    made = SyncTwin(redelivery_broker, redelivery_clock)
    yield made
    made.close()


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for line in lines(caplog, logging.INFO, logging.WARNING) if "drain" in line]


def test_a_drain_is_logged(twin: Twin, caplog: pytest.LogCaptureFixture) -> None:
    """The begin of a drain is logged with its running handlers, the end with the report."""
    caplog.set_level(logging.INFO)
    connection = twin.connect()
    twin.listen(connection, "q", lambda _: None)
    twin.broker.send("q", "a")
    eventually(twin, lambda: connection.report().accepted)
    twin.call(connection.drain(30))
    assert said(caplog) == [
        "draining: no handlers run; waiting for up to 30 s",
        "drained in 0.0 s: 1 accepted",
    ]


def test_who_is_left_is_logged(own: SyncTwin, gate: Gate, caplog: pytest.LogCaptureFixture) -> None:
    """Running handlers are logged each 5 s with their message ids, and once more when the drain gives up."""
    caplog.set_level(logging.INFO)
    connection = own.connect()
    connection.listen("q", gate, workers=12)
    connection.start()
    ids = sorted(own.broker.send("q", str(number)) for number in range(12))
    for _ in ids:
        assert gate.entered()
    draining = threading.Thread(target=connection.drain, args=(12,))
    draining.start()
    wait_for(lambda: said(caplog))
    own.advance(5)
    wait_for(lambda: len(said(caplog)) == 2)
    own.advance(5)
    wait_for(lambda: len(said(caplog)) == 3)
    own.advance(2)
    draining.join(PATIENCE)
    first, five, ten, left, end = said(caplog)
    assert first == "draining: 12 handlers run; waiting for up to 12 s"
    for line, begins in (
        (five, "draining: 12 handlers still run after 5 s; their messages: "),
        (ten, "draining: 12 handlers still "),
    ):
        assert line.startswith(begins)
        assert line.endswith(" and 2 more")
        assert len([one for one in ids if one in line]) >= 10
    assert left.startswith("drained, but 12 handlers have not ended; their messages: ")
    assert end.endswith(": 12 running")
    gate.open.set()


def test_a_clock_that_stands_still_keeps_no_drain(own: SyncTwin, gate: Gate) -> None:
    """A drain whose clock does not move ends after the same real time."""
    connection = own.connect()
    connection.listen("q", gate)
    connection.start()
    own.broker.send("q", "a")
    assert gate.entered()
    assert connection.drain(0.05).running == 1
    gate.open.set()


def test_a_send_that_waits_ends_with_the_drain() -> None:
    """A send that waits for a broker ends with the drain, also one that begins later."""
    found: list[BaseException] = []
    # Clock that does not jump because a send waits.
    clock = ManualClock()
    broker = MemoryBroker(clock=clock)

    def send() -> None:
        try:
            connection.send("q", "a")
        except redelivery.TransportError as error:
            found.append(error)

    with broker, redelivery.connect(broker.uri, clock=clock) as connection:
        broker.refuse_connections()
        broker.cut()
        sending = threading.Thread(target=send)
        sending.start()
        wait_for(lambda: len(connection._driver._standing))
        connection.drain(30)
        sending.join(PATIENCE)
        assert not sending.is_alive()
        send()
    assert [str(error) for error in found] == [
        "not connected, and the connection is draining: nothing was sent"
    ] * 2


def test_an_async_send_that_waits_ends_with_the_drain(
    redelivery_broker: MemoryBroker, redelivery_clock: ManualClock
) -> None:
    """A send of an asyncio connection ends with the drain, too."""

    async def main() -> None:
        async with redelivery.connect_async(redelivery_broker.uri, clock=redelivery_clock) as connection:
            redelivery_broker.refuse_connections()
            redelivery_broker.cut()
            sending = asyncio.ensure_future(connection.send("q", "a"))
            await asyncio.wait([sending], timeout=0)
            await connection.drain(30)
            with pytest.raises(redelivery.TransportError, match="is draining: nothing was sent"):
                await sending

    asyncio.run(main())

"""The watch over handlers with a time-out: its log lines, their times, and the handlers that a run waits for."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.driver.gates import PATIENCE, Gate, lines
from tests.driver.twins import SyncTwin, eventually, threads_left
from tests.eventually import eventually as wait_for

import redelivery
from redelivery import HandlerTimeout, SqliteLedger
from redelivery.errors import LedgerError
from redelivery.testing import ManualClock, MemoryBroker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.driver.twins import Twin

    from redelivery import Message


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


def start(twin: Twin, handler: Any, **options: Any) -> Any:
    """Return a connection with one message in a plain handler, which runs in a thread on both twins."""
    connection = twin.connect()
    connection.listen("q", handler, **options)
    twin.call(connection.start())
    twin.broker.send("q", "a")
    twin.advance(0)
    return connection


def test_it_speaks_at_the_time_and_at_twice_the_time(
    twin: Twin, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    """A WARNING with the stack at the timeout; an ERROR, not live, and raised by `wait` at twice the timeout."""
    stopped: list[BaseException] = []
    connection = twin.connect(on_stopped=stopped.append)
    connection.listen("q", gate, timeout=5)
    twin.call(connection.start())
    twin.broker.send("q", "a")
    twin.advance(0)
    assert gate.entered()
    twin.advance(4.9)
    assert lines(caplog) == []
    assert connection.health().live
    twin.advance(0.1)
    (line,) = lines(caplog)
    assert line.endswith(": its handler has run for 5 s, its timeout; nothing can stop a thread")
    (record,) = caplog.records[-1:]
    stack = record.getMessage().splitlines()[1:]
    assert "self.open.wait(PATIENCE)" in "\n".join(stack)
    assert len(stack) <= 20
    # Only the handler's own frames, not those of its callers.
    assert "__call__" in stack[0]
    assert "redelivery/driver" not in record.getMessage()
    assert connection.health().live
    twin.advance(5)
    assert lines(caplog, logging.ERROR) == [
        line.partition(": its")[0]
        + ": its handler has not ended within 10 s, twice its timeout; it is given up"
    ]
    assert isinstance(connection.error, HandlerTimeout)
    health = connection.health()
    assert (health.live, health.ready) == (False, False)
    assert health.reasons[0].startswith("a handler did not end: HandlerTimeout")
    assert health.reasons[1] == "queue://q: a handler runs for 10 s, its timeout is 5 s"
    assert health.consumers[0].oldest_running_s == 10
    with pytest.raises(HandlerTimeout, match="twice its timeout"):
        twin.call(connection.wait())
    eventually(twin, lambda: stopped)
    assert stopped == [connection.error]
    gate.open.set()


def test_handlers_in_time_wake_it_seldom(own: SyncTwin) -> None:
    """The watch sleeps until the oldest handler times out, or, if none runs, until one is started."""
    connection = start(own, lambda _: None, timeout=5)
    watch = connection._watch
    looks: list[float] = []
    look = watch._look

    def counted() -> Any:
        looks.append(own.clock.monotonic())
        return look()

    watch._look = counted
    for _ in range(100):
        own.broker.send("q", "a")
        own.advance(0.01)
    assert connection.report().accepted == 101
    assert len(looks) <= 3


def test_a_shorter_time_wakes_it(own: SyncTwin, gate: Gate, caplog: pytest.LogCaptureFixture) -> None:
    """A handler with a shorter timeout wakes the watch from a long sleep."""
    connection = start(own, gate, timeout=60)
    assert gate.entered()
    own.advance(1)
    connection.listen("r", gate, timeout=2)
    connection.start()
    own.broker.send("r", "b")
    assert gate.entered()
    own.advance(2)
    (line,) = lines(caplog)
    assert line.startswith("queue://r: ")
    gate.open.set()


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_run_waits_for_the_others_only(asynchronous: bool, caplog: pytest.LogCaptureFixture) -> None:
    """A run whose handler is stuck ends when the other one has ended, long before its drain_timeout."""
    caplog.set_level(logging.INFO)
    clock = ManualClock()
    gates = {"stuck": Gate(clock), "good": Gate(clock)}
    handled: list[str] = []

    def handle(message: Message) -> None:
        gates[message.text](message)
        handled.append(message.text)

    options: Any = {"workers": 2, "timeout": 5}

    def run() -> None:
        with redelivery.connect(broker.uri) as connection:
            connection.listen("q", handle, **options)
            connection.run(drain_timeout=PATIENCE)

    async def run_async() -> None:
        async with redelivery.connect_async(broker.uri) as connection:
            connection.listen("q", handle, **options)
            await connection.run(drain_timeout=PATIENCE)

    def go_on() -> None:
        # The other handler begins 5 s later, and ends when the run drains because the first is given up: 5 s before it
        # would be, too.
        assert gates["stuck"].entered()
        clock.advance(5)
        broker.send("q", "good")
        assert gates["good"].entered()
        clock.advance(5)
        wait_for(lambda: "draining" in caplog.text)
        gates["good"].open.set()

    with MemoryBroker(clock=clock) as broker:
        broker.send("q", "stuck")
        other = threading.Thread(target=go_on)
        other.start()
        try:
            with pytest.raises(HandlerTimeout):
                asyncio.run(run_async()) if asynchronous else run()
            assert handled == ["good"]
        finally:
            gates["stuck"].open.set()
            other.join()
    assert threads_left() == []


def test_one_that_is_stuck_while_it_drains_is_not_waited_for(
    own: SyncTwin, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    """A handler that is given up during a drain ends the drain, and is logged with its message."""
    caplog.set_level(logging.INFO)
    connection = start(own, gate, timeout=5)
    assert gate.entered()
    draining = threading.Thread(target=connection.drain, args=(PATIENCE,))
    draining.start()
    eventually(own, lambda: any("draining" in line for line in lines(caplog, logging.INFO)))
    own.advance(10)
    draining.join(PATIENCE)
    assert not draining.is_alive()
    assert any("drained, but 1 handler has not ended" in line for line in lines(caplog))
    gate.open.set()


def test_a_ledger_that_cannot_keep_it_ends_nothing(
    own: SyncTwin, gate: Gate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A ledger that cannot record a hanging handler does not keep the connection from having its error."""
    connection = own.connect(ledger=SqliteLedger(tmp_path / "ledger.db"))
    connection.listen("q", gate, timeout=5)
    connection.start()

    def fails(_: object) -> None:
        raise LedgerError("full")

    monkeypatch.setattr(connection._parts.connection_ledger, "hang", fails)
    own.broker.send("q", "a")
    assert gate.entered()
    own.advance(10)
    assert isinstance(connection.error, HandlerTimeout)
    gate.open.set()


def test_a_log_handler_that_raises_ends_no_watch(own: SyncTwin, gate: Gate) -> None:
    """A log handler that raises loses its line; the handler is still given up at twice its timeout."""

    class Fails(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "its timeout; " in record.getMessage():
                raise SystemExit(3)

    handler = Fails()
    logging.getLogger("redelivery").addHandler(handler)
    try:
        connection = start(own, gate, timeout=5)
        assert gate.entered()
        own.advance(10)
        assert isinstance(connection.error, HandlerTimeout)
    finally:
        logging.getLogger("redelivery").removeHandler(handler)
    gate.open.set()


def test_a_long_handler_without_a_time_out_is_logged_once(
    own: SyncTwin, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    """A handler without a timeout is logged once at INFO after 300 s; `health` has its seconds, and stays live."""
    caplog.set_level(logging.INFO)
    connection = start(own, gate)
    assert gate.entered()
    for _ in range(4):
        own.advance(100)
        assert connection.health().live
        own.advance(0)
    assert connection.health().consumers[0].oldest_running_s == 400
    found = [line for line in lines(caplog, logging.INFO) if "its listener has no timeout=" in line]
    assert len(found) == 1
    assert "its handler has run for 300 s" in found[0]
    gate.open.set()


def test_no_thread_watches_where_nothing_has_a_time_out(own: SyncTwin) -> None:
    """A connection whose listeners have no timeout has no watch thread."""
    start(own, lambda _: None)
    assert "redelivery-watch" not in [thread.name for thread in threading.enumerate()]

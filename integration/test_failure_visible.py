"""Failures that end consuming under `start()` are visible within 6 s on Artemis, over both protocols, also asyncio."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import threading
import time
from typing import TYPE_CHECKING, Any, Self

import pytest

import redelivery
from integration.eventually import PATIENCE, SLACK, eventually
from redelivery import HandlerTimeout, LedgerError, SqliteLedger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from integration.brokers import Broker

pytestmark = pytest.mark.ci("frozen and stopped brokers")

# Seconds until a failure must be visible: SQLite waits 5 s for a lock.
SEEN = 6.0


class Consumer:
    """A connection with a started handler, with threads or on the event loop of a thread of its own."""

    def __init__(
        self, uri: str, queue: str, handler: Callable[[Any], object], asynchronous: bool, **options: Any
    ):
        self.stopped: list[BaseException] = []
        self.raised: list[BaseException] = []
        self.connection: Any = None
        self._connect = {key: options.pop(key) for key in ("ledger",) if key in options}
        self._given = uri, queue, handler, options
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run_async if asynchronous else self._run, daemon=True)

    def __enter__(self) -> Self:
        """Wait until it has started."""
        self._thread.start()
        assert self._started.wait(PATIENCE)
        return self

    def __exit__(self, *_: object) -> None:
        """End it; the exception of `wait` is in `raised`."""
        self.connection.stop()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        uri, queue, handler, options = self._given
        with redelivery.connect(uri, on_stopped=self.stopped.append, **self._connect) as self.connection:
            self.connection.listen(queue, handler, **options)
            self.connection.start()
            self._started.set()
            try:
                self.connection.wait()
            except BaseException as error:
                self.raised.append(error)
            self.connection.drain(0)

    def _run_async(self) -> None:
        async def main() -> None:
            uri, queue, handler, options = self._given
            connection = redelivery.connect_async(uri, on_stopped=self.stopped.append, **self._connect)
            async with connection as self.connection:
                connection.listen(queue, handler, **options)
                await connection.start()
                self._started.set()
                await connection.wait_stopped()
                if connection.error is not None:
                    self.raised.append(connection.error)
                await connection.drain(0)

        asyncio.run(main())

    def seen(self, since: float) -> float:
        """Wait until the probe is not live; return the seconds since then."""
        eventually(lambda: not self.connection.health().live, interval=0.02)
        return time.monotonic() - since


@pytest.fixture(params=["stomp", "amqp"])
def uri(request: pytest.FixtureRequest, artemis: Broker) -> str:
    """URI of Artemis, over each protocol."""
    return artemis.uri(protocol=request.param)


@pytest.fixture(params=[False, True], ids=["threads", "asyncio"])
def asynchronous(request: pytest.FixtureRequest) -> bool:
    """True for a connection with asyncio."""
    return bool(request.param)


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Return the event that a handler waits for; it is set at the end of the test."""
    made = threading.Event()
    yield made
    made.set()


def send(uri: str, queue: str) -> None:
    with redelivery.connect(uri) as connection:
        connection.send(queue, "a")


def error_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


def test_a_handler_that_exits(
    uri: str, asynchronous: bool, unique_queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    """`sys.exit` in a handler is visible at once: one ERROR line, `wait` raises it, `on_stopped` is called."""

    def handle(_: object) -> None:
        raise SystemExit(3)

    with Consumer(uri, unique_queue, handle, asynchronous) as consumer:
        send(uri, unique_queue)
        since = time.monotonic()
        assert consumer.seen(since) < SEEN + SLACK
        eventually(lambda: consumer.raised and consumer.stopped)
    assert [type(error) for error in (*consumer.raised, *consumer.stopped)] == [SystemExit] * 2
    assert len(error_lines(caplog)) == 1


def test_a_handler_that_hangs(
    uri: str, asynchronous: bool, unique_queue: str, gate: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    """A handler that hangs is not live after twice its time-out; a WARNING with its stack comes before."""

    def handle(_: object) -> None:
        gate.wait(PATIENCE)

    with Consumer(uri, unique_queue, handle, asynchronous, timeout=0.5) as consumer:
        send(uri, unique_queue)
        since = time.monotonic()
        assert consumer.seen(since) < SEEN + SLACK
        eventually(lambda: consumer.raised and consumer.stopped)
        gate.set()
    assert isinstance(consumer.raised[0], HandlerTimeout)
    assert len(error_lines(caplog)) == 1
    assert any("gate.wait(PATIENCE)" in record.getMessage() for record in caplog.records)


def test_a_ledger_that_is_locked(
    uri: str, asynchronous: bool, unique_queue: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A ledger that another program locks is visible when SQLite's time-out is over."""
    path = tmp_path / "ledger.db"

    def handle(_: object) -> None:
        raise ValueError("it is charged, and written down")

    with Consumer(uri, unique_queue, handle, asynchronous, ledger=SqliteLedger(path)) as consumer:
        lock = sqlite3.connect(path, isolation_level=None)
        lock.execute("BEGIN EXCLUSIVE")
        send(uri, unique_queue)
        since = time.monotonic()
        took = consumer.seen(since)
        eventually(lambda: consumer.raised and consumer.stopped)
        lock.close()
    assert isinstance(consumer.raised[0], LedgerError)
    assert took < SEEN + SLACK
    assert len([line for line in error_lines(caplog) if "the consumer stops" in line]) == 1


def test_a_thread_of_the_connection_that_ends(
    uri: str, asynchronous: bool, unique_queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread of the connection that ends closes the connection with a reason."""

    def fault() -> None:
        raise RuntimeError("a fault")

    with Consumer(uri, unique_queue, lambda _: None, asynchronous) as consumer:
        monkeypatch.setattr(consumer.connection._driver, "_part_with_stopped", fault)
        since = time.monotonic()
        consumer.connection._driver.expect_alarm()
        assert consumer.seen(since) < SEEN + SLACK
        eventually(lambda: consumer.raised and consumer.stopped)
    assert "internal error: RuntimeError" in str(consumer.raised[0])


@pytest.mark.own_broker("kills it")
@pytest.mark.parametrize("protocol", ["stomp", "amqp"])
def test_a_broker_that_is_killed(artemis: Broker, protocol: str, unique_queue: str) -> None:
    """A killed broker leaves the process live; it is ready when the next connection's subscription is confirmed."""
    uri = artemis.uri(protocol=protocol)
    handled: list[object] = []
    with Consumer(uri, unique_queue, handled.append, False) as consumer:
        health = consumer.connection.health
        assert health().ready
        assert health().connection.broker.startswith("artemis") or "Artemis" in health().connection.broker
        artemis.kill()
        eventually(lambda: not health().ready)
        assert (health().live, health().consumers[0].state) == (True, "waiting for the broker")
        artemis.start()
        eventually(lambda: health().ready)
        assert health().live
        send(uri, unique_queue)
        eventually(lambda: handled)
    assert consumer.raised == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform cannot fork")
def test_a_child_that_closes(uri: str, unique_queue: str) -> None:
    """A child process that closes leaves its parent's connection open: no reconnect, and sends are confirmed."""
    with redelivery.connect(uri) as connection:
        child = os.fork()
        if not child:
            connection.close()
            os._exit(0)
        os.waitpid(child, 0)
        connection.send(unique_queue, "a", timeout=10)
        health = connection.health()
        assert (health.connection.connected, health.connection.reconnects) == (True, 0)

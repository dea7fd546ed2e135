"""Ends at a bad moment: cancelled, overtaken, or requested twice."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.driver.twins import eventually

import redelivery
import redelivery_memory.adapter
from redelivery.adapter import Subscribed
from redelivery.core.commands import Accept
from redelivery.core.events import ConnectionLost

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.driver.twins import Twin

    from redelivery import Message
    from redelivery.testing import MemoryBroker


class Turn:
    """Pause of one turn of the loop."""

    def __await__(self) -> Generator[None, None, None]:
        yield


def test_a_consumer_that_ends_right_after_the_look_tells_why(redelivery_broker: MemoryBroker) -> None:
    """An error that stops a consumer right after a task's poll is raised there."""

    async def main() -> None:
        async with redelivery.connect_async(redelivery_broker.uri) as connection:
            consumer = await connection.consumer("orders")
            dispatcher: Any = consumer._dispatcher
            look = dispatcher.poll
            looked: list[bool] = []

            def poll(after: Any = None, watch: Any = None) -> Any:
                found = look(after, watch)
                if not looked:
                    looked.append(True)
                    error = redelivery.AdapterError("the broker ended it", passes=False)
                    connection._driver._sink(Subscribed(dispatcher.subscribe.consumer, error))
                return found

            dispatcher.poll = poll
            with pytest.raises(redelivery.AdapterError, match="ended it"):
                await asyncio.wait_for(consumer.receive(), 5)

    asyncio.run(main())


def test_a_handler_that_has_ended_in_its_thread_counts(redelivery_broker: MemoryBroker) -> None:
    """A handler that has ended in its thread counts, though the loop has not run since."""

    async def main() -> None:
        called = threading.Event()
        async with redelivery.connect_async(redelivery_broker.uri) as connection:
            connection.listen("orders", lambda message: called.set())
            redelivery_broker.send("orders", "a")
            await connection.start()
            while not called.is_set():
                await Turn()
            assert connection._pool is not None
            connection._pool.shutdown(wait=True)  # blocks the loop until the handler has returned
        assert connection.report().accepted == 1
        assert redelivery_broker.depth("orders") == 0

    asyncio.run(main())


def test_a_cancelled_close_closes(redelivery_broker: MemoryBroker) -> None:
    """A cancelled close still closes the connection: there cannot be a second close."""

    async def main() -> None:
        called, tidied = asyncio.Event(), asyncio.Event()

        async def handle(message: Message) -> None:
            called.set()
            try:
                await asyncio.Event().wait()
            finally:
                await tidied.wait()

        async with redelivery.connect_async(redelivery_broker.uri) as connection:
            connection.listen("orders", handle)
            await connection.start()
            redelivery_broker.send("orders", "a")
            await called.wait()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(connection.close(), 0.05)
            assert redelivery_broker.connections == 0
            tidied.set()

    asyncio.run(main())


def test_what_is_held_for_good_is_no_business(twin: Twin, monkeypatch: pytest.MonkeyPatch) -> None:
    """A released message that the broker does not take back does not keep a connection from being idle."""
    able = replace(redelivery_memory.CAPABILITIES, release=False)
    monkeypatch.setattr(redelivery_memory.adapter, "CAPABILITIES", able)
    connection = twin.connect(clock=None)
    connection.listen("orders", twin.handler(lambda message: message.release()))
    twin.broker.send("orders", "a")
    assert twin.run(connection, until_idle=0.05).released == 1


def test_what_is_drained_does_not_run_again(twin: Twin) -> None:
    """`run`, `start` and `listen` after a drain raise: nothing would be handled."""
    connection = twin.connect()
    connection.listen("orders", twin.handler(lambda message: None))
    connection.stop()
    twin.run(connection)
    for again in (connection.run, connection.start):
        with pytest.raises(redelivery.ConfigurationError, match="has been drained; make a new one"):
            twin.call(again())
    with pytest.raises(redelivery.ConfigurationError, match="has been drained"):
        connection.listen("others", twin.handler(lambda message: None))


def test_a_close_does_not_overtake_what_the_driver_writes(redelivery_broker: MemoryBroker) -> None:
    """Settlements that the driver's thread has taken are written before another thread ends the consumer."""
    with redelivery.connect(redelivery_broker.uri) as connection:
        consumer = connection.consumer("orders")
        driver = connection._driver
        written: list[str] = []
        taken, closing = threading.Event(), threading.Event()

        def execute(commands: Any) -> None:
            if not taken.is_set():
                taken.set()
                closing.wait(0.1)
            written.extend(type(command).__name__ for command in commands)

        driver._adapter.execute = execute  # type: ignore[method-assign]
        driver._deferred.append(Accept(()))
        writer = threading.Thread(target=driver.flush)
        writer.start()
        taken.wait(60)
        consumer.close()
        writer.join()
        assert written == ["Accept", "Unsubscribe"]


def test_a_subscription_that_is_refused_after_a_reconnect_is_logged(
    twin: Twin, caplog: pytest.LogCaptureFixture
) -> None:
    """A subscription that is refused after a reconnect is logged, and `run` raises the error."""
    connection = twin.connect()
    twin.listen(connection, "orders", lambda _: None)
    (dispatcher,) = connection._dispatchers
    connection._driver._sink(
        Subscribed(dispatcher.subscribe.consumer, redelivery.AdapterError("not allowed", passes=False))
    )
    with pytest.raises(redelivery.AdapterError, match="not allowed"):
        twin.run(connection)
    lines = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert lines == ["queue://orders: the consumer stops: not allowed"]


def test_a_connection_whose_thread_is_ended_is_given_up(
    twin: Twin, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """SystemExit in the connection's thread gives the connection up: Python itself reports nothing."""
    connection = twin.connect()
    twin.listen(connection, "orders", lambda _: None)

    def end() -> None:
        raise SystemExit(3)

    monkeypatch.setattr(connection._driver, "_part_with_stopped", end)
    connection._driver.expect_alarm()
    with pytest.raises(redelivery.AdapterError, match="internal error: SystemExit"):
        twin.run(connection)
    assert "the connection is given up" in [record.getMessage() for record in caplog.records]


def test_a_fault_over_a_lost_connection_ends_its_consumers(
    twin: Twin, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A fault while a connection loss is handled ends all consumers: that thread can report it to no caller."""
    connection = twin.connect()
    twin.listen(connection, "orders", lambda _: None)

    def fault(*_: float) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr(connection._driver.shared_history, "connection_lost", fault)
    with pytest.raises(RuntimeError, match="a fault"):
        twin.broker.cut()
    with pytest.raises(redelivery.AdapterError, match="internal error: RuntimeError"):
        twin.run(connection)
    assert "the connection is given up" in caplog.text


def test_a_connection_that_is_given_up_is_closed(twin: Twin, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a fault of its thread a connection is closed: the broker gives its messages to others."""
    connection, other = twin.connect(), twin.connect()
    consumer = twin.call(connection.consumer("orders"))
    names = [twin.broker.send("orders", text) for text in ("a", "b")]
    held = twin.receive(consumer)

    def fault() -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr(connection._driver, "_part_with_stopped", fault)
    connection._driver.expect_alarm()
    eventually(twin, lambda: twin.broker.connections == 1)
    assert held.accept() is False
    others = twin.call(other.consumer("orders"))
    assert [twin.receive(others).text for _ in names] == ["a", "b"]
    assert "accepted" not in [step.action for name in names for step in twin.broker.history(name)]
    with pytest.raises(redelivery.AdapterError, match="internal error: RuntimeError"):
        twin.receive(consumer)


def test_a_connection_that_is_given_up_is_closed_by_its_own_thread(
    twin: Twin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own thread closes a connection that is given up, not the adapter's, and writes nothing before."""
    connection = twin.connect()
    consumer = twin.call(connection.consumer("orders"))
    twin.broker.send("orders", "a")
    driver = connection._driver
    close, closed_by, written = driver._adapter.close, list[str](), list[object]()

    def closes(timeout: float) -> bool:
        closed_by.append(threading.current_thread().name)
        answered: bool = close(timeout)
        return answered

    def fault(*_: float) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr(driver._adapter, "close", closes)
    monkeypatch.setattr(driver._adapter, "execute", written.extend)
    monkeypatch.setattr(driver.shared_history, "connection_lost", fault)
    driver._deferred.append(Accept(()))
    with pytest.raises(RuntimeError, match="a fault"):
        driver._sink(ConnectionLost(driver._epoch, redelivery.TransportError("cut")))
    eventually(twin, lambda: not twin.broker.connections)
    assert (closed_by, written) == (["redelivery-connection"], [])
    assert [one.delivered for one in twin.broker.messages("orders")] == [False]
    with pytest.raises(redelivery.AdapterError, match="internal error: RuntimeError"):
        twin.receive(consumer)

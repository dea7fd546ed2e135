"""Consumers that end while the connection changes."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.eventually import eventually

import redelivery
import redelivery_memory.adapter
from redelivery.core.commands import Accept, Subscribe, Unsubscribe

if TYPE_CHECKING:
    from tests.driver.twins import Twin

    from redelivery.testing import ManualClock, MemoryBroker

MEANWHILE = 0.05  # seconds for another thread; a longer time makes no difference if it has to wait


def test_a_consumer_closed_during_a_reconnect_leaves_no_ghost(
    redelivery_broker: MemoryBroker, redelivery_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer that is closed during a reconnect is not subscribed on the new connection."""
    with redelivery.connect(redelivery_broker.uri, clock=redelivery_clock) as connection:
        consumer = connection.consumer("orders")
        dispatcher, adapter = consumer._dispatcher, connection._driver._adapter
        connected, execute = dispatcher.connected, adapter.execute
        closer = threading.Thread(target=consumer.close)
        written: list[type[Any]] = []

        def preempted(event: Any) -> Any:
            commands = connected(event)
            closer.start()
            closer.join(0.05)  # a close that waits for this subscription may end later
            return commands

        def noted(commands: Any) -> None:
            written.extend(type(command) for command in commands)
            execute(commands)

        monkeypatch.setattr(dispatcher, "connected", preempted)
        monkeypatch.setattr(adapter, "execute", noted)
        redelivery_broker.cut()
        redelivery_clock.advance(1)
        closer.join(60)
        assert Unsubscribe in written
        assert Subscribe not in written[written.index(Unsubscribe) :]
        assert not connection._driver.dispatchers
        redelivery_broker.send("orders", "a")
        assert redelivery_broker.depth("orders") == 1


def test_a_consumer_closed_by_its_own_subscribing_is_not_subscribed(
    redelivery_broker: MemoryBroker, redelivery_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After UNSUBSCRIBE nothing is written for a consumer that its own subscribing thread closes."""
    with redelivery.connect(redelivery_broker.uri, clock=redelivery_clock) as connection:
        consumer = connection.consumer("orders")
        dispatcher, adapter = consumer._dispatcher, connection._driver._adapter
        connected, execute = dispatcher.connected, adapter.execute
        written: list[type[Any]] = []

        def closing(event: Any) -> Any:
            consumer.close()
            return connected(event)

        def noted(commands: Any) -> None:
            written.extend(type(command) for command in commands)
            execute(commands)

        monkeypatch.setattr(dispatcher, "connected", closing)
        monkeypatch.setattr(adapter, "execute", noted)
        redelivery_broker.cut()
        redelivery_clock.advance(1)
        assert Subscribe not in written


@pytest.mark.parametrize("closes", ["consumer", "connection"])
def test_closing_waits_for_dead_letters_in_doubt(twin: Twin, closes: str) -> None:
    """Closing waits for the confirmation of a copy: it counts, and the message is not handled again."""
    connection = twin.connect("?redelivery.deadLetter=forward")
    consumer = twin.call(connection.consumer("orders"))
    twin.broker.stall_confirmations()
    twin.broker.send("orders", "a")
    twin.receive(consumer).poison("bad")
    dispatcher = consumer._dispatcher

    def confirm() -> None:
        eventually(lambda: dispatcher.closed)
        twin.broker.resume_confirmations()

    confirming = threading.Thread(target=confirm)
    confirming.start()
    twin.call((consumer if closes == "consumer" else connection).close())
    confirming.join()
    assert connection.report() == redelivery.Report(poisoned=1)


@pytest.mark.parametrize("closes", ["consumer", "connection"])
def test_closing_waits_until_its_deadline_only(twin: Twin, closes: str) -> None:
    """Closing ends at its deadline without an answer; the unconfirmed dead letter is not counted."""
    connection = twin.connect("?redelivery.deadLetter=forward")
    consumer = twin.call(connection.consumer("orders"))
    twin.broker.stall_confirmations()
    twin.broker.send("orders", "a")
    twin.receive(consumer).poison("bad")
    twin.call((consumer if closes == "consumer" else connection).close(timeout=0.01))
    twin.broker.resume_confirmations()
    assert connection.report() == redelivery.Report()


@pytest.mark.parametrize("ended", ["refused", "lost"])
def test_what_is_in_doubt_no_longer_is_not_waited_for(twin: Twin, ended: str) -> None:
    """Closing does not wait for a refused copy, nor for one that was sent on a lost connection."""
    connection = twin.connect("?redelivery.deadLetter=forward")
    consumer = twin.call(connection.consumer("orders"))
    twin.broker.send("orders", "a")
    message = twin.receive(consumer)
    if ended == "refused":
        twin.broker.fail_forward(1)
        message.poison("bad")
    else:
        twin.broker.stall_confirmations()
        message.poison("bad")
        twin.broker.refuse_connections()
        twin.broker.cut()
    began = time.monotonic()
    twin.call(consumer.close(timeout=60))
    assert time.monotonic() - began < 30


def test_a_consumer_closed_while_its_subscription_is_written_leaves_no_ghost(
    redelivery_broker: MemoryBroker, redelivery_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last command to the broker for a closed consumer is its UNSUBSCRIBE, at whatever moment it is closed."""
    with redelivery.connect(redelivery_broker.uri, clock=redelivery_clock) as connection:
        consumer = connection.consumer("orders")
        adapter = connection._driver._adapter
        execute = adapter.execute
        closer = threading.Thread(target=consumer.close)

        def preempted(commands: Any) -> None:
            if isinstance(commands[0], Subscribe):
                closer.start()
                closer.join(MEANWHILE)
            execute(commands)

        monkeypatch.setattr(adapter, "execute", preempted)
        redelivery_broker.cut()
        redelivery_clock.advance(1)
        closer.join(60)
        redelivery_broker.send("orders", "a")
        assert [held.delivered for held in redelivery_broker.messages("orders")] == [False]


def test_a_consumer_is_not_made_on_a_connection_behind_the_next(
    redelivery_broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer that is made while the connection is lost is subscribed on the next one, and only there."""
    with redelivery.connect(redelivery_broker.uri) as connection:
        driver = connection._driver
        introduce = driver._introduce
        me, never = threading.current_thread(), threading.Event()

        def slow(*arguments: Any) -> None:
            if threading.current_thread() is me:
                redelivery_broker.cut()
                never.wait(2 * MEANWHILE)  # for the driver's thread to connect again, and to wait
            introduce(*arguments)

        monkeypatch.setattr(driver, "_introduce", slow)
        consumer = connection.consumer("orders")
        redelivery_broker.send("orders", "a")
        message = consumer.receive(5)
        assert message is not None
        assert message.accept()


class Written:
    """Commands that reach the adapter of a connection, by type, and its close."""

    def __init__(self, connection: redelivery.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
        self.order: list[str] = []
        self.before_accept: Any = lambda: None
        adapter = connection._driver._adapter
        execute, close = adapter.execute, adapter.close

        def executed(commands: Any) -> None:
            if any(isinstance(command, Accept) for command in commands):
                self.before_accept()
            self.order += [type(command).__name__ for command in commands]
            execute(commands)

        def closed(timeout: float) -> None:
            self.order.append("close")
            close(timeout)

        monkeypatch.setattr(adapter, "execute", executed)
        monkeypatch.setattr(adapter, "close", closed)


@pytest.mark.parametrize("closes", ["consumer", "connection"])
@pytest.mark.parametrize("takes", ["accept", "receive"])
def test_nothing_overtakes_a_settlement_that_is_about_to_be_written(
    redelivery_broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch, closes: str, takes: str
) -> None:
    """The end of a consumer or connection waits for a thread that has taken a settlement to write it."""
    batch = replace(redelivery_memory.CAPABILITIES, batch=takes == "receive")
    monkeypatch.setattr(redelivery_memory.adapter, "CAPABILITIES", batch)
    with redelivery.connect(redelivery_broker.uri) as connection:
        consumer = connection.consumer("orders")
        written = Written(connection, monkeypatch)
        closer = threading.Thread(target=(consumer if closes == "consumer" else connection).close)

        def close_meanwhile() -> None:
            written.before_accept = lambda: None
            closer.start()
            closer.join(MEANWHILE)

        written.before_accept = close_meanwhile
        redelivery_broker.send("orders", "a")
        message = consumer.receive(5)
        assert message is not None
        message.accept()
        eventually(lambda: closer.ident or (takes == "receive" and consumer.receive(0)))
        closer.join()
    assert "Accept" in written.order
    assert redelivery_broker.depth("orders") == 0
    last = "Unsubscribe" if closes == "consumer" else "close"
    assert written.order.index("Accept") < written.order.index(last)


def test_closing_ends_with_the_last_write(
    redelivery_broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing a consumer during a write ends when the write ends, not at its deadline."""
    with redelivery.connect(redelivery_broker.uri) as connection:
        consumer = connection.consumer("orders")
        written = Written(connection, monkeypatch)
        closer = threading.Thread(target=consumer.close, args=(600,))

        def close_meanwhile() -> None:
            closer.start()
            closer.join(MEANWHILE)

        written.before_accept = close_meanwhile
        redelivery_broker.send("orders", "a")
        message = consumer.receive(5)
        assert message is not None
        message.accept()
        closer.join(30)
        assert not closer.is_alive()


def test_nothing_overtakes_what_is_left_to_the_drivers_thread(
    redelivery_broker: MemoryBroker, redelivery_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy to be sent again is written by the driver before any thread can end the consumer."""
    slow = replace(redelivery_memory.CAPABILITIES, batch=True)
    monkeypatch.setattr(redelivery_memory.adapter, "CAPABILITIES", slow)
    options = "?redelivery.deadLetter=forward"
    with redelivery.connect(redelivery_broker.uri + options, clock=redelivery_clock) as connection:
        consumer = connection.consumer("orders")
        written = Written(connection, monkeypatch)
        defer = connection._driver.defer
        closer = threading.Thread(target=consumer.close, args=(0,))

        def deferred(commands: Any) -> None:
            closer.start()
            closer.join(MEANWHILE)
            defer(commands)

        redelivery_broker.fail_forward(1)
        redelivery_broker.send("orders", "a")
        message = consumer.receive(0)
        assert message is not None
        message.poison("bad")
        monkeypatch.setattr(connection._driver, "defer", deferred)
        redelivery_clock.advance(1)
        closer.join()
    assert written.order.count("Forward") == 2
    assert "Forward" not in written.order[written.order.index("Unsubscribe") :]

"""Draining and closing, and handlers that still run then."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from tests.driver.twins import threads_left

import redelivery

if TYPE_CHECKING:
    from tests.driver.twins import Twin

    from redelivery import Message
    from redelivery.testing import ManualClock, MemoryBroker


def test_running_handlers_finish(redelivery_broker: MemoryBroker, redelivery_clock: ManualClock) -> None:
    """Running handlers finish and their messages are accepted; the others are released, uncounted."""
    started, finish = threading.Event(), threading.Event()

    def handle(message: Message) -> None:
        if message.text == "fail":
            raise ValueError("no")
        started.set()
        assert finish.wait(60)

    with redelivery.connect(redelivery_broker.uri, clock=redelivery_clock) as connection:
        for body in ("fail", "slow", "never"):
            redelivery_broker.send("orders", body)
        connection.listen("orders", handle)
        connection.start()
        assert started.wait(60)
        with ThreadPoolExecutor(1) as pool:
            report = pool.submit(connection.drain)
            while connection.report().released < 2:
                pass
            assert not report.done()
            finish.set()
            assert report.result(60) == redelivery.Report(accepted=1, redelivered=1, released=2)
        left = redelivery_broker.messages("orders")
        assert [(held.text, held.broker_count, held.delivered) for held in left] == [
            ("fail", 0, False), ("never", 0, False),
        ]  # fmt: skip
        assert threads_left_of_workers() == []


def threads_left_of_workers() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name == "redelivery-worker"]


def test_the_deadline_passes(redelivery_broker: MemoryBroker, redelivery_clock: ManualClock) -> None:
    """A handler that outlasts the drain is reported; its message is not released, and is redelivered later."""
    started, finish = threading.Event(), threading.Event()
    outcomes: list[bool] = []

    def handle(message: Message) -> None:
        started.set()
        assert finish.wait(60)
        outcomes.append(message.accept())

    with redelivery.connect(redelivery_broker.uri, clock=redelivery_clock) as connection:
        redelivery_broker.send("orders", "slow")
        connection.listen("orders", handle)
        connection.start()
        assert started.wait(60)
        assert connection.drain(timeout=0.01) == redelivery.Report(running=1)
        assert redelivery_broker.messages("orders")[0].delivered
    assert [held.broker_count for held in redelivery_broker.messages("orders")] == [1]
    finish.set()
    assert threads_left() == []
    assert outcomes == [False]


def test_closing_ends_a_receive_elsewhere(
    redelivery_broker: MemoryBroker, redelivery_clock: ManualClock
) -> None:
    """A thread inside `receive` gets None when another thread closes its consumer, or the connection."""
    with redelivery.connect(redelivery_broker.uri, clock=redelivery_clock) as connection:
        first, second = connection.consumer("orders"), connection.consumer("orders")
        with ThreadPoolExecutor(2) as pool:
            one, two = pool.submit(first.receive), pool.submit(second.receive)
            first.close()
            assert one.result(60) is None
            assert not two.done()
            connection.close()
            assert two.result(60) is None
        assert first.receive() is None


def test_closing_ends_a_run_elsewhere(redelivery_broker: MemoryBroker, redelivery_clock: ManualClock) -> None:
    """`run` returns when another thread closes the connection."""
    with redelivery.connect(redelivery_broker.uri, clock=redelivery_clock) as connection:
        connection.listen("orders", lambda _: None)
        with ThreadPoolExecutor(1) as pool:
            report = pool.submit(connection.run)
            # Wait until it consumes: a connection that is closed before that ends `run` with an error.
            while connection._listeners[0].dispatcher is None:
                pass
            connection.close()
            assert report.result(60) == redelivery.Report()


def test_a_run_that_fails_lets_the_others_finish(
    redelivery_broker: MemoryBroker, redelivery_clock: ManualClock
) -> None:
    """When one handler ends the run, the other's message is accepted before `run` raises."""
    started, leaving = threading.Event(), threading.Event()

    def handle(message: Message) -> None:
        if message.text == "exit":
            assert started.wait(60)
            leaving.set()
            raise SystemExit(1)
        started.set()
        assert leaving.wait(60)

    with redelivery.connect(redelivery_broker.uri, clock=redelivery_clock) as connection:
        redelivery_broker.send("orders", "exit")
        redelivery_broker.send("orders", "fine")
        connection.listen("orders", handle, workers=2, credit=2)
        try:
            connection.run()
        except SystemExit:
            pass
        else:
            raise AssertionError("run() should have raised")
        report = connection.report()
        assert (report.accepted, report.running) == (1, 0)


def test_drain_is_for_pulling_too(twin: Twin) -> None:
    """Messages that the application has pulled may be settled after the drain."""
    connection = twin.connect()
    consumer = twin.call(connection.consumer("orders"))
    for body in ("a", "b"):
        twin.broker.send("orders", body)
    message = twin.receive(consumer)
    report = twin.call(connection.drain(timeout=0))
    assert (report.running, report.released) == (1, 1)
    assert message.accept() is True
    assert [held.text for held in twin.broker.messages("orders")] == ["b"]
    assert twin.call(connection.drain(timeout=0)).accepted == 1


def test_what_fails_while_draining_goes_back(twin: Twin) -> None:
    """A failure during a drain is charged, counted once, and released instead of parked."""
    connection = twin.connect()
    consumer = twin.call(connection.consumer("orders"))
    twin.broker.send("orders", "a")
    message = twin.receive(consumer)
    twin.call(connection.drain(timeout=0))
    assert message.fail() is True
    assert connection.report() == redelivery.Report(redelivered=1)
    assert not twin.broker.messages("orders")[0].delivered


def test_a_closed_connection_leaves_nothing(redelivery_broker: Any, redelivery_clock: ManualClock) -> None:
    """A closed connection leaves no thread, no broker connection, and no thread attached to the clock."""
    for _ in range(3):
        with redelivery.connect(redelivery_broker.uri, clock=redelivery_clock) as connection:
            connection.listen("orders", lambda _: None, workers=3)
            connection.start()
    assert threads_left() == []
    assert redelivery_broker.connections == 0
    assert redelivery_clock._threads._slots == []

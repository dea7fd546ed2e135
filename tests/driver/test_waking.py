"""Wake-ups: every waiting thread gets what it can take."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.eventually import eventually

import redelivery
import redelivery_memory.adapter
from redelivery.driver.consumer.dispatcher import HIGH, LOW, SKIPPED, Dispatcher, ReadThrottle
from redelivery.testing import ManualClock, MemoryBroker

if TYPE_CHECKING:
    import pytest

    from redelivery import Message


def test_messages_that_come_back_overdue_run_at_the_same_time(
    redelivery_broker: MemoryBroker, redelivery_clock: ManualClock
) -> None:
    """Three messages that were due during an outage are handled by three workers at once."""
    together = threading.Barrier(3, timeout=60)

    def handle(message: Message) -> None:
        if message.delivery_count == 1:
            raise ValueError("no")
        together.wait()

    with redelivery.connect(redelivery_broker.uri, clock=redelivery_clock) as connection:
        connection.listen("orders", handle, workers=3)
        connection.start()
        for body in ("a", "b", "c"):
            redelivery_broker.send("orders", body)
        redelivery_clock.advance(0.5)
        redelivery_broker.refuse_connections()
        redelivery_broker.cut()
        redelivery_clock.advance(10)
        redelivery_broker.accept_connections()
        redelivery_clock.advance(30)
        assert connection.drain() == redelivery.Report(accepted=3, redelivered=3)


def test_a_slow_handler_does_not_keep_the_next_due_time_to_itself(
    redelivery_broker: MemoryBroker, redelivery_clock: ManualClock
) -> None:
    """While one thread is inside a handler, another takes a message that gets due."""
    release, second = threading.Event(), threading.Event()

    def handle(message: Message) -> None:
        if message.delivery_count == 1:
            raise ValueError("no")
        if message.text == "a":
            assert second.wait(60)
        else:
            second.set()
            release.set()

    with redelivery.connect(redelivery_broker.uri, clock=redelivery_clock) as connection:
        connection.listen("orders", handle, workers=2)
        connection.start()
        redelivery_broker.send("orders", "a")
        redelivery_broker.send("orders", "b")
        redelivery_clock.advance(1)
        redelivery_clock.advance(1)
        assert release.wait(60)
        assert connection.drain().accepted == 2


def test_a_refused_dead_letter_is_tried_again_after_a_second(
    redelivery_broker: MemoryBroker, redelivery_clock: ManualClock
) -> None:
    """A refused dead letter is sent again after a second: the driver's thread wakes earlier than it planned."""
    with redelivery.connect(redelivery_broker.uri, clock=redelivery_clock) as connection:
        consumer = connection.consumer("orders")
        redelivery_broker.stall_confirmations()
        redelivery_broker.fail_forward(0)
        redelivery_broker.refuse_settlements(1)
        redelivery_broker.send("orders", "a")
        message = consumer.receive(0)
        assert message is not None
        message.poison("bad")
        redelivery_clock.advance(0.5)  # the driver's thread now sleeps until the answer is overdue
        redelivery_broker.resume_confirmations()
        redelivery_clock.advance(0.999)
        assert redelivery_broker.dead_letters() == []
        redelivery_clock.advance(0.001)
        assert [letter.cause for letter in redelivery_broker.dead_letters()] == ["bad"]


def test_a_pause_of_reading_has_one_thread_and_one_end() -> None:
    """One thread pauses reading at a time; an early end of the pause is kept, and time ends the pause, too."""
    gate, lock = ReadThrottle(), threading.Lock()
    assert gate.closes(HIGH)
    assert not gate.closes(HIGH)
    gate.opens(LOW + 1)
    assert gate.paused
    gate.opens(LOW)
    assert gate.closes(HIGH)  # before the first thread waits
    gate.opens(LOW)
    gate.wait(lock)
    gate.wait(lock)  # the second thread: the first has used the end, and it goes on after its time
    assert not lock.locked()
    assert gate.closes(HIGH)
    gate.wait(lock)
    assert not gate.paused
    for _ in range(SKIPPED):  # no worker ended that pause: the handlers are slow
        assert not gate.closes(HIGH)
    assert gate.closes(HIGH)


def test_taking_ends_a_pause_of_reading(
    redelivery_broker: MemoryBroker, redelivery_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reading thread goes on as soon as few messages are ready, before its time is over."""
    with redelivery.connect(redelivery_broker.uri, clock=redelivery_clock) as connection:
        consumer = connection.consumer("orders")
        gate, told = consumer._dispatcher._throttle, list[int]()
        monkeypatch.setattr(gate, "opens", told.append)
        for body in ("a", "b", "c"):
            redelivery_broker.send("orders", body)
        consumer.receive(0)
        assert told == []
        gate.paused = True
        consumer.receive(0)
        assert told == [1]


def test_all_who_wait_for_a_dead_letter_learn_of_it() -> None:
    """One answer ends the waits of two threads that drain at the same time."""
    clock = ManualClock()
    with MemoryBroker(clock=clock) as broker, redelivery.connect(broker.uri, clock=clock) as connection:
        consumer = connection.consumer("orders")
        broker.stall_confirmations()
        broker.send("orders", "a")
        message = consumer.receive(0)
        assert message is not None
        message.poison("bad")
        drains = [threading.Thread(target=connection.drain, args=(60,), daemon=True) for _ in "ab"]
        for drain in drains:
            drain.start()
        waiters = clock._waiters.get
        eventually(
            lambda: [w.awake for w in list(waiters(consumer._dispatcher._ready, ()))] == [False, False]
        )
        broker.resume_confirmations()
        for drain in drains:
            drain.join(60)
        assert not any(drain.is_alive() for drain in drains)


def test_the_driver_does_not_stop_looking_while_something_is_collected(
    redelivery_broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settlements that are collected just when the driver's thread goes to sleep are written."""
    monkeypatch.setattr(
        redelivery_memory.adapter, "CAPABILITIES", replace(redelivery_memory.CAPABILITIES, batch=True)
    )
    with redelivery.connect(redelivery_broker.uri) as connection:
        dispatcher = connection.consumer("orders")._dispatcher
        driver, looked = connection._driver, list[bool]()

        def collecting(_: Dispatcher) -> bool:
            looked.append(driver._polling)
            return True

        monkeypatch.setattr(Dispatcher, "collecting", property(collecting))
        driver.expect(dispatcher)
        # The flag is down already: the thread has gone on, and checks again.
        eventually(lambda: looked.count(False) > 1)


def test_closing_on_the_drivers_own_thread(
    redelivery_broker: MemoryBroker, redelivery_clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Closing on the driver's own thread does not wait for that thread."""
    with redelivery.connect(redelivery_broker.uri, clock=redelivery_clock) as connection:
        dispatcher, driver = connection.consumer("orders")._dispatcher, connection._driver
        tick, calls = dispatcher.tick, list[threading.Thread]()

        def close() -> None:
            calls.append(threading.current_thread())
            connection.close()
            tick()

        dispatcher.tick = close  # type: ignore[method-assign]
        driver.expect_alarm()
        assert driver._thread is not None
        driver._thread.join(60)
        assert calls == [driver._thread]
    assert caplog.messages == []

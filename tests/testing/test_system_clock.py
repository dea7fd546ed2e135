"""Calls that the machine's clock makes later, all of them on one thread."""

from __future__ import annotations

import os
import threading
import time

import pytest
from tests.eventually import eventually

import redelivery
from redelivery.clock import SystemClock, _Timers
from redelivery.testing import MemoryBroker


def timers() -> list[threading.Thread]:
    """Return the threads that make later calls."""
    known = ("redelivery-timers", "Thread-")
    return [thread for thread in threading.enumerate() if thread.name.startswith(known)]


def test_many_delayed_messages_are_one_thread() -> None:
    """2,000 messages delayed by the memory broker take one thread, which ends with the broker."""
    before = set(threading.enumerate())

    def timers() -> list[threading.Thread]:
        """Return the threads of this test: those of other tests may end meanwhile."""
        return [
            each for each in threading.enumerate() if each.name == "redelivery-timers" and each not in before
        ]

    with MemoryBroker() as broker, redelivery.connect(broker.uri) as connection:
        for number in range(2000):
            connection.send("orders", str(number), delay=3600)
        assert len(timers()) == 1
        assert len({*threading.enumerate()} - before) < 10
        connection.send("orders", "soon", delay=0.01)
        message = connection.consumer("orders").receive(timeout=60)
        assert message is not None
        assert message.text == "soon"
        message.accept()
    eventually(lambda: timers() == [])


def test_calls_come_in_the_order_of_their_times() -> None:
    """Calls are made in the order of their times; a cancelled call is not made."""
    calls, seen = _Timers(), list[str]()
    begin, done, now = threading.Event(), threading.Event(), time.monotonic()
    # Holds the thread until all calls are there, so that none is made before, however slow the machine is.
    calls.add(now, lambda: begin.wait(60))
    last = calls.add(now + 0.05, done.set)
    calls.add(now + 0.03, lambda: seen.append("b"))
    cancel = calls.add(now + 0.02, lambda: seen.append("never"))
    calls.add(now + 0.01, lambda: seen.append("a"))
    cancel()
    cancel()
    begin.set()
    assert done.wait(60)
    assert seen == ["a", "b"]
    last()  # has no effect any more


def test_a_call_that_fails_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception of a call goes to the threads' hook, and the calls after it are made."""
    clock, raised, done = SystemClock(), list[threading.ExceptHookArgs](), threading.Event()
    monkeypatch.setattr(threading, "excepthook", raised.append)
    clock.call_later(0, lambda: 1 // 0)
    clock.call_later(0.01, done.set)
    assert done.wait(60)
    assert [args.exc_type for args in raised] == [ZeroDivisionError]


def test_a_delay_of_centuries() -> None:
    """A delay of centuries is several waits of the longest time that a lock can wait; the thread ends with it."""
    clock = SystemClock()
    before = len(timers())
    cancels = [clock.call_later(delay, print) for delay in (1e300, 2 * threading.TIMEOUT_MAX)]
    assert len(timers()) <= before + 1
    for cancel in cancels:
        cancel()
    eventually(lambda: not [thread for thread in timers() if thread.name == "redelivery-timers"])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_child_process_calls_its_own() -> None:
    """A child process makes none of its parent's calls, and has its own thread."""
    clock = SystemClock()
    cancel = clock.call_later(3600, print)
    pid = os.fork()
    if not pid:
        done = threading.Event()
        clock.call_later(time.get_clock_info("monotonic").resolution, done.set)
        os._exit(0 if done.wait(60) else 1)
    assert os.waitpid(pid, 0)[1] == 0
    cancel()


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_the_others_are_called_whatever_one_raises(
    monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    """A hook that fails, too, does not end the thread of all calls."""
    clock, done = SystemClock(), threading.Event()

    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(threading, "excepthook", fails)
    clock.call_later(0, fails)
    clock.call_later(0.01, done.set)
    assert done.wait(60)


def test_a_thread_that_cannot_start_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call at the system's limit of threads raises, and is not made; the next ones are made in time."""
    monkeypatch.setattr("redelivery.clock._timers", _Timers())
    clock, seen, done = SystemClock(), list[str](), threading.Event()
    with monkeypatch.context() as limited:
        limited.setattr(threading.Thread, "start", refused)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            clock.call_later(0, lambda: seen.append("refused"))
    clock.call_later(0, lambda: seen.append("made"))
    clock.call_later(0.01, done.set)
    assert done.wait(60)
    assert seen == ["made"]


def refused(_: threading.Thread) -> None:
    """Raise, as the system does at its limit of threads."""
    raise RuntimeError("can't start new thread")

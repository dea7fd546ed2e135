"""Threads that a manual clock waits for."""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest
from tests.eventually import eventually

from redelivery.testing import ManualClock


@pytest.mark.parametrize("ends", [False, True])
def test_a_thread_that_is_slow_to_start_is_waited_for(*, ends: bool) -> None:
    """A thread that starts before another one and waits after it is counted."""
    clock, gate, started = ManualClock(patience=0.2), threading.Event(), threading.Event()
    condition, waits = threading.Condition(), list[bool]()

    def slow() -> None:
        started.set()
        assert gate.wait(60)
        with condition:
            clock.wait(condition, None)

    def quick() -> None:
        if ends:
            clock.detach()
            return
        with condition:
            waits.append(True)
            clock.wait(condition, None)

    clock.attach()
    threading.Thread(target=slow, name="slow", daemon=True).start()
    assert started.wait(60)
    other = threading.Thread(target=quick, daemon=True)
    clock.attach()
    other.start()
    eventually(lambda: not other.is_alive() if ends else waits)
    with pytest.raises(RuntimeError, match="these threads still run: slow"):
        clock.advance(10)
    gate.set()

    def rests() -> bool:
        with suppress(RuntimeError):
            clock.advance(0)
            return True
        return False

    eventually(rests)

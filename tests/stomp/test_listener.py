"""Heart-beats of a STOMP connection, on a clock of the test's."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
import stomp.listener
from stomp import utils

from redelivery_stomp.connection import PatientHeartbeats


class Wire:
    """A transport that takes heart-beats, and notes its end."""

    def __init__(self) -> None:
        self.listeners: dict[str, Any] = {}
        self.open = True

    def is_connected(self) -> bool:
        return self.open

    def transmit(self, frame: Any) -> None:
        for listener in self.listeners.values():
            listener.on_send(frame)

    def set_connected(self, connected: bool) -> None:
        self.open = connected

    def disconnect_socket(self) -> None:
        pass

    def stop(self) -> None:
        pass


class Clock:
    """The waits of stomp.py's loop, at whose times the broker writes."""

    def __init__(self, wire: Wire, writes: list[float], end: float) -> None:
        self.now, self.wire, self.writes, self.end = 0.0, wire, writes, end
        self.listener: Any = None

    def clear(self) -> None:
        pass

    def is_set(self) -> bool:
        return not self.wire.open or self.now >= self.end

    def wait(self, seconds: float) -> bool:
        until = self.now + seconds + 0.001
        while self.writes and self.writes[0] <= until:
            self.now = self.writes.pop(0)
            self.listener.on_heartbeat()
        self.now = until
        return False


def lives(monkeypatch: pytest.MonkeyPatch, writes: list[float], end: float) -> tuple[bool, float]:
    """Run stomp.py's loop over what a broker writes at these seconds; return whether it lives, and when it ended."""
    wire: Any = Wire()
    clock = Clock(wire, writes, end)
    loops: list[Any] = []

    def thread(loop: Any) -> SimpleNamespace:
        loops.append(loop)
        return SimpleNamespace(name="")

    monkeypatch.setattr(stomp.listener, "monotonic", lambda: clock.now)
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(utils, "default_create_thread", thread)
    listener = PatientHeartbeats(wire, 10.0)
    clock.listener = wire.listeners["heart-beats"] = listener
    terminates: Any = listener
    terminates.heartbeat_terminate_event = clock
    listener.on_connected(utils.Frame("CONNECTED", {"heart-beat": "10000,10000"}, b""))
    loops[0]()
    return wire.open, clock.now


def test_a_classic_that_is_silent_for_two_intervals_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Classic's silence of up to two intervals after its last frame loses no connection."""
    # It looks at 10, 20, 30 …; a frame at 10.1, and later one at 50.1, make it skip the next heart-beat.
    writes = [0.0, 10.1, 30.0, 40.0, 50.1, 70.0, 80.0]
    assert lives(monkeypatch, writes, 89.0)[0]


@pytest.mark.parametrize("writes", [[], [10.0, 20.0, 30.0, 40.0]], ids=["from the beginning", "later"])
def test_a_broker_that_is_silent_for_longer_is_lost(
    monkeypatch: pytest.MonkeyPatch, writes: list[float]
) -> None:
    """A broker that writes nothing for two and a half intervals is lost, also if it never wrote a heart-beat."""
    last = writes[-1] if writes else 0.0
    alive, at = lives(monkeypatch, writes, 200.0)
    assert not alive
    assert last + 25 <= at <= last + 26

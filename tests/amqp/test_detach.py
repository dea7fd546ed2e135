"""Ends of sessions on brokers that answer on the channel that the next session would have."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, cast

from redelivery_amqp.detach import DetachQueue

if TYPE_CHECKING:
    import pytest


class Consumer:
    """A consumer's link that records its calls; it is its own session."""

    def __init__(self, name: str, log: list[str]) -> None:
        self._name = name
        self._log = log
        self.handle: object | None = self
        self.session = self

    def detach(self, *, alone: bool) -> None:
        """Record the end of the link, with its session or without."""
        self._log.append(f"{self._name} link ends" if alone else f"{self._name} ends")

    def close(self) -> None:
        """Record the end of the session."""
        self._log.append(f"{self._name} session ends")

    def free(self) -> None:
        """Record that it is freed."""
        self._log.append(f"{self._name} is freed")


def test_a_session_begins_when_the_one_before_is_over() -> None:
    """A session begins after the broker has answered the end of the old link and then of its session."""
    log: list[str] = []
    detaches, old = DetachQueue(in_turn=True), cast("Any", Consumer("old", log))
    detaches.begin(lambda: log.append("first begins"))
    detaches.leave(old)
    detaches.begin(lambda: log.append("next begins"))
    assert log == ["first begins", "old link ends"]
    detaches.answered(old)
    detaches.begin(lambda: log.append("last begins"))
    assert log[2:] == ["old session ends"]
    detaches.over(old)
    assert log[3:] == ["next begins", "last begins"]
    detaches.free_ended()
    detaches.free_ended()
    assert log[5:] == ["old is freed"]


def test_elsewhere_nobody_waits() -> None:
    """Without turns a link ends with its session, and the next session begins at once."""
    log: list[str] = []
    detaches, old = DetachQueue(in_turn=False), cast("Any", Consumer("old", log))
    detaches.leave(old)
    detaches.begin(lambda: log.append("next begins"))
    detaches.wait(0.0)
    detaches.answered(old)
    detaches.free_ended()
    assert log == ["old ends", "next begins", "old session ends"], "its session's end is not answered"
    detaches.over(old)
    detaches.free_ended()
    assert log[3:] == ["old is freed"]


def test_a_session_whose_end_is_never_answered_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session whose end is not answered delays the next one only for a time; it is freed if the answer comes."""
    log: list[str] = []
    gone_on = threading.Event()

    def unended() -> None:
        detaches.go_on()
        gone_on.set()

    monkeypatch.setattr("redelivery_amqp.detach.UNENDED", 0.01)
    detaches, old = DetachQueue(unended=unended, in_turn=True), cast("Any", Consumer("old", log))
    detaches.leave(old)
    detaches.begin(lambda: log.append("next begins"))
    assert not gone_on.wait(0.05), "the end of a link has longer"
    detaches.answered(old)
    assert gone_on.wait(60)
    detaches.begin(lambda: log.append("last begins"))
    assert log == ["old link ends", "old session ends", "next begins", "last begins"]
    detaches.over(old)
    detaches.free_ended()
    assert log[4:] == ["old is freed"]


def test_a_lost_connection_ends_all_turns() -> None:
    """A lost connection ends all waits, and drops the sessions that were to begin."""
    log: list[str] = []
    detaches, old, never = DetachQueue(in_turn=True), Consumer("old", log), Consumer("never", log)
    never.handle = None
    detaches.leave(cast("Any", never))
    detaches.begin(lambda: log.append("next begins"))
    detaches.leave(cast("Any", old))
    detaches.begin(lambda: log.append("dropped"))
    detaches.fail()
    detaches.wait(10.0)
    detaches.over(cast("Any", old))
    assert "dropped" not in log

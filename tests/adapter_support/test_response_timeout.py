"""Limit on an answer that other commands wait behind."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.eventually import eventually
from tests.needs import need

from redelivery.adapter_support import sockets
from redelivery.adapter_support.sockets import ResponseTimeout

need("proton")

from redelivery_amqp.detach import DetachQueue

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE = 60.0


class ManualTimer:
    """Timer that fires when a test advances the time."""

    daemon, name = False, ""

    def __init__(self, time: ManualTime, seconds: float, function: Callable[[], None]) -> None:
        self.time, self.at, self.function = time, time.now + seconds, function

    def start(self) -> None:
        self.time.timers.append(self)

    def cancel(self) -> None:
        self.time.timers.remove(self)


class ManualTime:
    """Replacement of `time` and `threading`: time stands still, and a timer fires when `advance` reaches it."""

    Lock = staticmethod(threading.Lock)

    def __init__(self) -> None:
        self.now = 1000.0
        self.timers: list[ManualTimer] = []
        self.current: ManualTimer | None = None

    def monotonic(self) -> float:
        return self.now

    def Timer(self, seconds: float, function: Callable[[], None]) -> ManualTimer:  # noqa: N802 - the name in `threading`
        return ManualTimer(self, seconds, function)

    def current_thread(self) -> ManualTimer | None:
        return self.current

    def advance(self, seconds: float) -> None:
        """Fire the timers that are due, in order."""
        end = self.now + seconds
        while due := [timer for timer in self.timers if timer.at <= end]:
            self.current = min(due, key=lambda timer: timer.at)
            self.timers.remove(self.current)
            self.now = self.current.at
            self.current.function()
        self.now = end


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> ManualTime:
    """Return the time of all limits of a test."""
    made = ManualTime()
    monkeypatch.setattr(sockets, "time", made)
    monkeypatch.setattr(sockets, "threading", made)
    return made


def test_an_answer_that_does_not_come() -> None:
    """A missing answer is reported from a thread of the limit."""
    over = threading.Event()
    patience = ResponseTimeout(over.set, limit=0.01)
    patience.asked()
    assert over.wait(PATIENCE)


def test_an_answer_that_comes(time: ManualTime) -> None:
    """A missing answer is reported once; an answer that has arrived is not reported."""
    over: list[float] = []
    patience = ResponseTimeout(lambda: over.append(time.now), limit=60.0)
    patience.asked()
    time.advance(59)
    patience.answered()
    time.advance(3600)
    assert over == []
    patience.asked()
    time.advance(3600)
    assert over == [1000.0 + 59 + 3600 + 60]


def test_nothing_is_waited_for_after_the_end() -> None:
    """A question after the end starts no timer, and leaves no thread."""
    before = threading.active_count()
    patience = ResponseTimeout(lambda: None, limit=60.0)
    patience.asked()
    assert threading.active_count() == before + 1
    patience.end()
    patience.asked()
    eventually(lambda: threading.active_count() == before)


def test_each_answer_has_its_own_time(time: ManualTime) -> None:
    """Each new question starts the whole limit again."""
    over: list[float] = []
    patience = ResponseTimeout(lambda: over.append(time.now), limit=60.0)
    patience.asked()
    for _ in range(4):
        time.advance(20)
        patience.asked()
    time.advance(3600)
    assert over == [1000.0 + 80 + 60]


def test_a_broker_that_answers_nothing_is_given_longer(time: ManualTime) -> None:
    """A broker that answers nothing, perhaps because its memory is full, gets a multiple of the limit.

    An answer to something else ends that.
    """
    over: list[float] = []
    patience = ResponseTimeout(lambda: over.append(time.now), limit=60.0, silent=6)
    patience.asked()
    time.advance(3600)
    assert over == [1000.0 + 360]
    patience.asked()
    time.advance(130)
    patience.heard()
    time.advance(3600)
    assert over[1:] == [1000.0 + 3600 + 180]


def test_a_thread_that_cannot_start_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A question at the system's limit of threads raises; for the next one the limit works again."""

    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    over = threading.Event()
    patience = ResponseTimeout(over.set, limit=0.01)
    with monkeypatch.context() as limited:
        limited.setattr(threading.Thread, "start", refused)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            patience.asked()
    patience.asked()
    assert over.wait(PATIENCE)


class Consumer:
    """Consumer's link whose detach the broker never answers."""

    handle = session = object()

    def detach(self, *, alone: bool) -> None:
        """Do nothing."""


def test_an_end_that_is_never_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unanswered detach over AMQP ends the connection: all later consumers would wait behind it."""
    monkeypatch.setattr(
        "redelivery_amqp.detach.ResponseTimeout", lambda over, _=0.0: ResponseTimeout(over, limit=0.01)
    )
    over = threading.Event()
    endings = DetachQueue(over.set, in_turn=True)
    endings.leave(cast("Any", Consumer()))
    assert over.wait(PATIENCE)

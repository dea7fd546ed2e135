"""The limit on an answer that others wait behind."""

from __future__ import annotations

import threading
import time
from typing import Any, cast

import pytest
from tests.eventually import eventually

from redelivery.adapter_support.response_timeout import ResponseTimeout

pytest.importorskip("proton", reason="python-qpid-proton is not installed")
pytest.importorskip("stomp", reason="stomp.py is not installed")

from redelivery_amqp.detach import DetachQueue

PATIENCE = 10.0


def test_an_answer_that_does_not_come() -> None:
    """It is said once, and not of an answer that has come."""
    over = threading.Event()
    patience = ResponseTimeout(over.set, limit=0.01)
    patience.asked()
    assert over.wait(PATIENCE)
    over.clear()
    patience = ResponseTimeout(over.set, limit=0.3)
    patience.asked()
    patience.answered()
    assert not over.wait(0.4)


def test_nothing_is_waited_for_after_the_end() -> None:
    """A question behind the end starts no timer: no thread is left behind."""
    before = threading.active_count()
    patience = ResponseTimeout(lambda: None, limit=60.0)
    patience.asked()
    assert threading.active_count() == before + 1
    patience.end()
    patience.asked()
    eventually(lambda: threading.active_count() == before)


def test_each_answer_has_its_own_time() -> None:
    """What was asked for later is waited for as long."""
    over = threading.Event()
    patience = ResponseTimeout(over.set, limit=0.6)
    patience.asked()
    for _ in range(4):
        assert not over.wait(0.2)
        patience.asked()
    assert over.wait(PATIENCE)


def test_a_broker_that_answers_nothing_is_given_longer() -> None:
    """Its memory may be full: it is waited for so many times as long, unless something else is answered meanwhile."""
    over = threading.Event()
    patience = ResponseTimeout(over.set, limit=0.05, silent=6)
    began = time.monotonic()
    patience.asked()
    assert over.wait(PATIENCE)
    assert time.monotonic() - began >= 0.3
    over.clear()
    patience = ResponseTimeout(over.set, limit=0.05, silent=10_000)
    patience.asked()
    assert not over.wait(0.12)
    patience.heard()
    assert over.wait(PATIENCE)


def test_a_thread_that_cannot_start_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The question that meets the system's limit of threads raises; the answer to the next one is missed in time."""

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
    """A consumer's link that nobody answers."""

    handle = session = object()

    def detach(self, *, alone: bool) -> None:
        """Nothing comes of it."""


def test_an_end_that_is_never_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """An end of a link over AMQP that would keep all later consumers from beginning ends the connection."""
    monkeypatch.setattr(
        "redelivery_amqp.detach.ResponseTimeout", lambda over, _=0.0: ResponseTimeout(over, limit=0.01)
    )
    over = threading.Event()
    endings = DetachQueue(over.set, in_turn=True)
    endings.leave(cast("Any", Consumer()))
    assert over.wait(PATIENCE)

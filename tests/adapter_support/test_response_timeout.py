"""Limit on an answer that other commands wait behind."""

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
    """A missing answer is reported once; an answer that has arrived is not."""
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
    """A question after the end starts no timer, and leaves no thread."""
    before = threading.active_count()
    patience = ResponseTimeout(lambda: None, limit=60.0)
    patience.asked()
    assert threading.active_count() == before + 1
    patience.end()
    patience.asked()
    eventually(lambda: threading.active_count() == before)


def test_each_answer_has_its_own_time() -> None:
    """Each new question starts the whole limit again."""
    over = threading.Event()
    patience = ResponseTimeout(over.set, limit=0.6)
    patience.asked()
    for _ in range(4):
        assert not over.wait(0.2)
        patience.asked()
    assert over.wait(PATIENCE)


def test_a_broker_that_answers_nothing_is_given_longer() -> None:
    """A broker that answers nothing, perhaps because its memory is full, gets a multiple of the limit.

    An answer to something else ends that.
    """
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

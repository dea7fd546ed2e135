"""A limit on how long an adapter waits for an answer that others wait behind."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["UNANSWERED", "ResponseTimeout"]

UNANSWERED = 60.0
"""Seconds: whoever makes a consumer waits for 30."""
SILENT = 15
"""Times as long where the broker answers nothing else either. RabbitMQ in a memory alarm reads nothing of who publishes
over STOMP, goes on with its heart-beats, and answers when the alarm is over. The next connection would get no further,
and what the one before had written is carried out all the same: dead letters are written twice (measured)."""


class ResponseTimeout:
    """Calls `over`, on a thread of its own, when an answer has not come `limit` seconds after it was asked for.

    If nothing else was answered (`heard`) in the later half of that time, it waits `silent` times as long.
    In real time: it is about the wire. The thread lives only while something is waited for.
    """

    def __init__(self, over: Callable[[], None], limit: float = UNANSWERED, *, silent: int = 1) -> None:
        self._over = over
        self._limit = limit
        self._silent = silent
        # When something else was answered last.
        self._heard = 0.0
        self._lock = threading.Lock()
        self._since: float | None = None
        self._timer: threading.Timer | None = None
        self._ended = False

    def asked(self) -> None:
        """Begin to wait for an answer; what was waited for before has come."""
        with self._lock:
            if self._ended:
                # By a thread that had not noticed it.
                return
            self._since = time.monotonic()
            if self._timer is None:
                self._start(self._limit)

    def heard(self) -> None:
        """Hear that something else has been answered."""
        self._heard = time.monotonic()

    def answered(self) -> None:
        """Wait for nothing any longer."""
        with self._lock:
            self._since = None
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def end(self) -> None:
        """Wait for nothing any more: the connection is over, and no thread may be left behind it."""
        with self._lock:
            self._ended = True
        self.answered()

    def _start(self, seconds: float) -> None:
        timer = threading.Timer(seconds, self._look)
        timer.name, timer.daemon = "redelivery-patience", True
        # It may raise: then the next question tries again.
        timer.start()
        self._timer = timer

    def _look(self) -> None:
        with self._lock:
            if threading.current_thread() is not self._timer:
                # It has fired in the moment in which it was cancelled.
                return
            self._timer = None
            if self._since is None:
                return
            left = self._since + self._limit - time.monotonic()
            if left <= 0 and self._heard < self._since + self._limit / 2:
                # Looked at again each time: it may begin to answer others.
                left = min(self._limit, left + (self._silent - 1) * self._limit)
            if left > 0:
                self._start(left)
                return
            self._since = None
        self._over()

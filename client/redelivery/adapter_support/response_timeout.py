"""Limit on how long an adapter waits for an answer that other commands wait behind."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["UNANSWERED", "ResponseTimeout"]

UNANSWERED = 60.0
"""Seconds. Starting a consumer waits for 30."""
SILENT = 15
"""Factor for a broker that answers nothing else either.

A RabbitMQ in a memory alarm reads nothing from a connection that publishes over STOMP, sends heart-beats all
the time, and answers after the alarm. A new connection would not be read either, and the commands of the old
one are carried out later: dead letters are written twice (measured).
"""


class ResponseTimeout:
    """Timer that calls `over`, on its own thread, when an answer is `limit` seconds late.

    If nothing else was answered (`heard`) in the later half of that time, it waits `silent` times as long. It
    uses real time, because it is about the network. The thread lives only while an answer is expected.
    """

    def __init__(self, over: Callable[[], None], limit: float = UNANSWERED, *, silent: int = 1) -> None:
        self._over = over
        self._limit = limit
        self._silent = silent
        # Time of the last answer to something else.
        self._heard = 0.0
        self._lock = threading.Lock()
        self._since: float | None = None
        self._timer: threading.Timer | None = None
        self._ended = False

    def asked(self) -> None:
        """Start waiting for an answer. An answer that was expected before has arrived."""
        with self._lock:
            if self._ended:
                # Called by a thread that has not noticed the end yet.
                return
            self._since = time.monotonic()
            if self._timer is None:
                self._start(self._limit)

    def heard(self) -> None:
        """Record that something else was answered."""
        self._heard = time.monotonic()

    def answered(self) -> None:
        """Stop waiting."""
        with self._lock:
            self._since = None
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def end(self) -> None:
        """Stop waiting for good: the connection is over, and no thread may outlive it."""
        with self._lock:
            self._ended = True
        self.answered()

    def _start(self, seconds: float) -> None:
        timer = threading.Timer(seconds, self._look)
        timer.name, timer.daemon = "redelivery-patience", True
        # It may raise. Then the next call of `asked` tries again.
        timer.start()
        self._timer = timer

    def _look(self) -> None:
        with self._lock:
            if threading.current_thread() is not self._timer:
                # It fired while it was being cancelled.
                return
            self._timer = None
            if self._since is None:
                return
            left = self._since + self._limit - time.monotonic()
            if left <= 0 and self._heard < self._since + self._limit / 2:
                # In steps of the limit: the broker may begin to answer other commands.
                left = min(self._limit, left + (self._silent - 1) * self._limit)
            if left > 0:
                self._start(left)
                return
            self._since = None
        self._over()

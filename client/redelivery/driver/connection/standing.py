"""Futures of those that wait for a connection to stand: sends, commits, a start in the background."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING

from redelivery.driver.connection.pending_sends import end

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery.errors import RedeliveryError

__all__ = ["Standing"]


class Standing:
    """Those futures. From any thread; nothing is called with the lock held but the look at the connection."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: set[Future[None]] = set()
        # Why nothing waits any more.
        self._refusal: RedeliveryError | None = None

    def __len__(self) -> int:
        """Return how many wait."""
        return len(self._waiting)

    def wait(self, found: Callable[[], tuple[bool, RedeliveryError | None]]) -> Future[None]:
        """Return a future that ends when the connection stands, or with an error when nothing may wait for that.

        `found`: whether it stands now, else the error if it never will.
        """
        future: Future[None] = Future()
        with self._lock:
            self._waiting.add(future)
            refusal = self._refusal
        # Also of who has given up waiting.
        future.add_done_callback(self._drop)
        # After it was added: a connection that begins meanwhile ends it, too.
        up, error = found()
        if up or error is not None or refusal is not None:
            end(future, None if up else error or refusal)
        return future

    def end(self, error: RedeliveryError | None) -> None:
        """End all of them: the connection stands, or never will."""
        with self._lock:
            waiting, self._waiting = self._waiting, set()
        for future in waiting:
            end(future, error)

    def refuse(self, error: RedeliveryError) -> None:
        """End all of them, and from now on each that would wait."""
        with self._lock:
            self._refusal = error
        self.end(error)

    def _drop(self, future: Future[None]) -> None:
        with self._lock:
            self._waiting.discard(future)

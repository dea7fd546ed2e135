"""Futures of calls that wait until a connection is up: sends, commits, a start in the background."""

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
    """Futures that end when the connection is up, for any thread. No foreign code is called with the lock held."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: set[Future[None]] = set()
        # Error of every new future: waiting is not possible any more.
        self._refusal: RedeliveryError | None = None

    def __len__(self) -> int:
        """Return the number of waiting futures."""
        return len(self._waiting)

    def wait(self, found: Callable[[], tuple[bool, RedeliveryError | None]]) -> Future[None]:
        """Return a future that ends when the connection is up, or with an error when it will not be up again.

        `found`: returns True if the connection is up now, and the error if it will never be, or None.
        """
        future: Future[None] = Future()
        with self._lock:
            self._waiting.add(future)
            refusal = self._refusal
        # Also if the caller cancels it.
        future.add_done_callback(self._drop)
        # After it was added: a connection that begins in between ends the future, too.
        up, error = found()
        if up or error is not None or refusal is not None:
            end(future, None if up else error or refusal)
        return future

    def end(self, error: RedeliveryError | None) -> None:
        """End all futures: the connection is up (None), or never will be (the error)."""
        with self._lock:
            waiting, self._waiting = self._waiting, set()
        for future in waiting:
            end(future, error)

    def refuse(self, error: RedeliveryError) -> None:
        """End all futures with an error, and from now on each new one."""
        with self._lock:
            self._refusal = error
        self.end(error)

    def _drop(self, future: Future[None]) -> None:
        with self._lock:
            self._waiting.discard(future)

"""Sends that the broker has not answered yet."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import TYPE_CHECKING

from redelivery.errors import RedeliveryError, TransportError, another

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redelivery.core.outgoing import Outgoing

__all__ = ["MOST_ABANDONED", "PendingSends", "end"]

MOST_ABANDONED = 16 * 1024 * 1024
"""Bytes of bodies that nobody waits for any longer, and that may still lie here for a broker that does not read."""


class PendingSends:
    """Who waits for the answer to which send, on the connection that stands.

    A send whose time is up stays with the adapter until the broker reads it, or until the connection is lost. So that a
    program that tries again and again does not fill the memory, nothing further is sent past `MOST_ABANDONED`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tokens = itertools.count(1)
        self._waiting: dict[int, tuple[Future[None], int]] = {}  # with its bytes
        self._abandoned: dict[int, int] = {}  # bytes

    def __len__(self) -> int:
        """How many wait for an answer."""
        return len(self._waiting)

    def begin(self, messages: Sequence[Outgoing]) -> tuple[int, Future[None]]:
        """Return a token for the command, and the future that ends with its answer. Raises TransportError."""
        future: Future[None] = Future()
        token, size = next(self._tokens), sum(len(message.body) for message in messages)
        with self._lock:
            given_up = sum(self._abandoned.values())
            if given_up >= MOST_ABANDONED:
                raise TransportError(
                    f"the broker has not answered {len(self._abandoned)} messages ({given_up} bytes) in their time: "
                    f"nothing was sent to {', '.join(message.destination for message in messages) or 'it'}"
                )
            self._waiting[token] = future, size
        future.add_done_callback(lambda _: self._ended(token, size))
        return token, future

    def answered(self, token: int, error: RedeliveryError | None) -> None:
        """Give the broker's answer to who waits for it."""
        with self._lock:
            future, _ = self._waiting.pop(token, (None, 0))
            self._abandoned.pop(token, None)
        end(future, error)

    def give_up(self, future: Future[None]) -> None:
        """Take note that the application no longer waits, though the answer is still of use."""
        with self._lock:
            for token, (waiting, size) in self._waiting.items():
                if waiting is future:
                    self._abandoned[token] = size

    def lost(self, error: RedeliveryError) -> None:
        """Tell everybody that the connection is lost, and what was to be written with it."""
        with self._lock:
            waiting, self._waiting = list(self._waiting.values()), {}
            self._abandoned.clear()
        for future, _ in waiting:
            end(future, error)

    def _ended(self, token: int, size: int) -> None:
        with self._lock:
            # By who has waited, not by an answer.
            if self._waiting.pop(token, None) is not None:
                self._abandoned[token] = size


def end(future: Future[None] | None, error: RedeliveryError | None) -> None:
    """End a future, unless whoever waited has cancelled it, at this very moment even."""
    if future is None:
        return
    with suppress(InvalidStateError):
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(another(error))

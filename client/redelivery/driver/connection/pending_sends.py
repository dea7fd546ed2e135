"""Sends that the broker has not answered yet."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from redelivery.errors import AdapterError, BrokerUnavailable, RedeliveryError, TransportError, another

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redelivery.core.commands import AdapterCommand
    from redelivery.core.outgoing import Outgoing

__all__ = ["MOST_ABANDONED", "PendingSends", "closed", "end"]

MOST_ABANDONED = 16 * 1024 * 1024
"""Bytes of bodies of abandoned sends, in memory for a broker that does not read. At the limit nothing more is sent."""


class SendingDriver(Protocol):
    """Interface of the driver that writes a message; `ConnectionDriver` implements it."""

    def not_connected(self) -> RedeliveryError | None:
        """Return why nothing can be written now; None: the connection is up."""

    def write(self, commands: Sequence[AdapterCommand]) -> None:
        """Write commands on this thread."""


class PendingSends:
    """Pending sends of the current connection: maps a token to the future that ends with the broker's answer.

    A send whose time is up stays with the adapter until the broker reads it, or until the connection is lost. A program
    that sends again and again would fill the memory. Therefore nothing more is sent past `MOST_ABANDONED`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tokens = itertools.count(1)
        # With the bytes of its bodies, and the destination of a message that is sent alone.
        self._waiting: dict[int, tuple[Future[None], int, str | None]] = {}
        self._abandoned: dict[int, int] = {}  # bytes

    def __len__(self) -> int:
        """Return the number of sends without an answer."""
        return len(self._waiting)

    def ask(
        self,
        messages: Sequence[Outgoing],
        command: Callable[[int], AdapterCommand],
        unsent: type[RedeliveryError] | None,
        driver: SendingDriver,
    ) -> Future[None]:
        """Write messages; return the future that ends with the answer.

        Args:
            messages: The messages that the command sends; their bodies are counted until the answer.
            command: Makes the command with a token.
            unsent: Type of the error if nothing was written; None: the error as it is.
            driver: Driver of the connection.
        """
        try:
            token, future = self.begin(messages, alone=unsent is None)
        except RedeliveryError as error:
            refusal: Future[None] = Future()
            end(refusal, error if unsent is None else unsent(str(error)))
            return refusal
        # After `begin`: a connection loss in between ends this send, too.
        lost = driver.not_connected()
        if lost is not None:
            self.answered(token, lost if unsent is None else unsent(str(lost)))
            return future
        try:
            driver.write((command(token),))
        except Exception as error:  # noqa: BLE001 - a value that the protocol cannot carry, or a fault
            what = AdapterError(f"the message cannot be written: {type(error).__name__}: {error}")
            self.answered(token, what)
        return future

    def begin(self, messages: Sequence[Outgoing], *, alone: bool) -> tuple[int, Future[None]]:
        """Return a token for the command, and the future that ends with its answer. Raises TransportError.

        `alone`: the message is sent by itself, and not in a transaction.
        """
        future: Future[None] = Future()
        token, size = next(self._tokens), sum(len(message.body) for message in messages)
        with self._lock:
            given_up = sum(self._abandoned.values())
            if given_up >= MOST_ABANDONED:
                raise TransportError(
                    f"the broker has not confirmed {len(self._abandoned)} messages ({given_up} bytes) in time: "
                    f"nothing was sent to {', '.join(message.destination for message in messages) or 'it'}"
                )
            self._waiting[token] = future, size, messages[0].destination if alone else None
        future.add_done_callback(lambda _: self._ended(token, size))
        return token, future

    def answered(self, token: int, error: RedeliveryError | None) -> None:
        """End the future of a send with the broker's answer."""
        with self._lock:
            future, _, destination = self._waiting.pop(token, (None, 0, None))
            self._abandoned.pop(token, None)
        if destination is not None and isinstance(error, AdapterError) and error.passes:
            # A node that restarts: a caller who takes a refusal as permanent would drop the message.
            error = BrokerUnavailable(f"{error}; the broker refuses it for now: try again")
        end(future, error)

    def give_up(self, future: Future[None]) -> None:
        """Count a send as abandoned: the application no longer waits, but the answer is still used."""
        with self._lock:
            for token, (waiting, size, _) in self._waiting.items():
                if waiting is future:
                    self._abandoned[token] = size

    def lost(self, error: RedeliveryError) -> None:
        """End all sends with the error of the lost connection; messages that were not yet written are lost with it."""
        with self._lock:
            waiting, self._waiting = list(self._waiting.values()), {}
            self._abandoned.clear()
        for future, _, destination in waiting:
            told = f"{error}; the message to {destination} may have been sent"
            end(future, error if destination is None else TransportError(told))

    def _ended(self, token: int, size: int) -> None:
        with self._lock:
            # Still pending: the caller has ended the future, not an answer.
            if self._waiting.pop(token, None) is not None:
                self._abandoned[token] = size


def end(future: Future[None] | None, error: RedeliveryError | None) -> None:
    """End a future, unless its waiting caller has cancelled it, even at this moment."""
    if future is None:
        return
    with suppress(InvalidStateError):
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(another(error))


def closed() -> TransportError:
    """Return the error for calls that the application's own `close` has ended."""
    return TransportError("the connection was closed")

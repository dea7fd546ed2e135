"""A connection of its own for copies to a place that may refuse them.

RabbitMQ and Artemis close a STOMP connection over a refused SEND, and all consumers lose their messages with it. Once a
copy to a place was not confirmed, the next ones are sent apart, until one is confirmed.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from redelivery.errors import AdapterError, RedeliveryError, TransportError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from redelivery.adapter import AdapterEvent, Opening, Sink
    from redelivery_stomp.receipts import Answer, Receipts

__all__ = ["CopyConnection"]

Link = TypeVar("Link", bound="OpenLink")

# Seconds without a copy after which the connection is closed.
IDLE = 60.0


class OpenLink(Protocol):
    """An open connection; `StompConnection` is one."""

    @property
    def over(self) -> bool:
        """True if nothing more can be written."""
        ...

    @property
    def receipts(self) -> Receipts:
        """The requests without an answer."""
        ...

    @property
    def order(self) -> AbstractContextManager[object]:
        """Lock of the writing side."""
        ...

    def abandon(self) -> None:
        """Close at once."""


class CopyConnection(Generic[Link]):
    """Sends copies over a connection that it opens when there is one, on a thread of its own: `execute` never waits."""

    def __init__(self, opening: Opening, log_in: Callable[[Opening, Sink], Link]) -> None:
        """Send to the address of `opening`. `log_in`: opens a connection."""
        # A broker takes one connection with a client id.
        self._opening = replace(opening, settings=replace(opening.settings, client_id=None))
        self._log_in = log_in
        self._copies: SimpleQueue[tuple[Callable[[Link, Answer], None], Answer] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._link: Link | None = None
        self._ended = False
        self._number = 0

    def send(self, write: Callable[[Link, Answer], None], answer: Answer) -> None:
        """Send one copy soon: `write` gets the connection and a callback; `answer` is called once, on any thread."""
        with self._lock:
            self._copies.put((write, answer))
            if self._thread is None and not self._ended:
                self._thread = threading.Thread(target=self._run, name="redelivery-copies", daemon=True)
                self._thread.start()

    def end(self) -> None:
        """Close, and answer nothing any more."""
        with self._lock:
            self._ended = True
            self._copies.put(None)
            link = self._link
        if link is not None:
            link.abandon()

    def _run(self) -> None:
        while (copy := self._next()) is not None:
            write, answer = copy
            try:
                self._send(write, answer)
            except Exception as error:  # noqa: BLE001 - the thread must go on: other copies would wait for ever
                self._tell(
                    answer, AdapterError(f"the copy cannot be written: {type(error).__name__}: {error}")
                )

    def _next(self) -> tuple[Callable[[Link, Answer], None], Answer] | None:
        """Wait for a copy; return None, and let the thread end, if none comes and none is without an answer."""
        while True:
            try:
                copy = self._copies.get(timeout=IDLE)
            except Empty:
                copy = None
            with self._lock:
                if self._ended:
                    return None
                if copy is not None:
                    return copy
                # A broker without memory, or with a full address, answers when it has room again.
                waits = self._link is not None and not self._link.over and len(self._link.receipts) > 0
                if not self._copies.empty() or waits:
                    continue
                # From now on another copy makes a thread and a connection of its own.
                link, self._link, self._thread = self._link, None, None
            if link is not None:
                link.abandon()
            return None

    def _send(self, write: Callable[[Link, Answer], None], tell: Answer) -> None:
        def answer(error: RedeliveryError | None) -> None:
            self._tell(tell, error)

        try:
            link = self._standing()
        except RedeliveryError as error:
            answer(error)
            return
        with link.order:
            write(link, answer)
        if link.over:
            # It was lost meanwhile: no loss is reported, and the end may have answered before this receipt was there.
            for late in link.receipts.all():
                late(TransportError("the connection for copies was lost"))

    def _tell(self, tell: Answer, error: RedeliveryError | None) -> None:
        if not self._ended:
            tell(error)

    def _standing(self) -> Link:
        """Return the open connection, or a new one. Raises as `Adapter.open` does."""
        if self._link is None or self._link.over:
            # Numbers of its own, below those of the consumers' connections: limits are learned by connection.
            self._number -= 1
            self._link = self._log_in(replace(self._opening, epoch=self._number), _nothing)
        if self._ended:
            self._link.abandon()
            raise TransportError("the connection was closed")
        return self._link


def _nothing(_: AdapterEvent) -> None:
    """Report no event: a loss is the answer to each copy without one."""

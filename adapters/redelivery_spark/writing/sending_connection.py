"""A connection that sends many messages with their confirmations in flight."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from redelivery.connection import Connection
from redelivery.driver.connection.send_request import SEND_TIMEOUT, unconfirmed, unsent
from redelivery.driver.thread_wait import answer_by
from redelivery.errors import AdapterError, RedeliveryError, TransportError

if TYPE_CHECKING:
    from concurrent.futures import Future

    from redelivery.clock import Clock
    from redelivery.core.outgoing import Outgoing

__all__ = ["SendingConnection"]

MOST = 1000  # messages unconfirmed
MOST_BYTES = 16 << 20  # of their bodies, but for one message


class SendingConnection(Connection):
    """Sends; `confirm` ends when the broker has confirmed all of it."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self._flying: deque[tuple[Future[None], Outgoing, float]] = deque()
        self._bytes = 0
        self.confirmed = 0
        """How many messages the broker has confirmed."""

    @property
    def clock(self) -> Clock:
        """What it waits by."""
        return self._clock

    def put(self, message: Outgoing, identity: str) -> None:
        """Send a message under this id, when there is room for one more that is unconfirmed.

        Raises:
            AdapterError: the broker refused a message.
            TransportError: the connection was lost, or a confirmation did not come in time.
        """
        capabilities = self._driver.capabilities
        assert capabilities is not None, "entered"
        headers = {**message.headers, "redeliveryId": identity}
        if capabilities.duplicate_property is not None:
            headers[capabilities.duplicate_property] = identity
        message = replace(message, headers=headers)
        size = len(message.body)
        while self._flying and (len(self._flying) >= MOST or self._bytes + size > MOST_BYTES):
            self._await_first()
        began = self._clock.monotonic()
        if not self._driver.up:
            limit = self._patience(SEND_TIMEOUT)
            try:
                answer_by(began + limit, self._driver.standing(), self._clock)
            except TimeoutError:
                raise unsent(message.destination, limit) from None
        self._flying.append((self._driver.send(message), message, began + SEND_TIMEOUT))
        self._bytes += size

    def confirm(self) -> int:
        """Wait until the broker has confirmed everything; return how many messages. Errors as `put`."""
        while self._flying:
            self._await_first()
        return self.confirmed

    def _await_first(self) -> None:
        future, message, deadline = self._flying.popleft()
        self._bytes -= len(message.body)
        try:
            answer_by(deadline, future, self._clock)
        except TimeoutError:
            raise unconfirmed(message.destination, SEND_TIMEOUT) from None
        except RedeliveryError as error:
            raise self._cause(error) from None
        self.confirmed += 1

    def _cause(self, error: RedeliveryError) -> RedeliveryError:
        """Return why sending ended: what the broker refused, if that is what the connection was lost over."""
        if isinstance(error, TransportError):
            for future, _, _ in self._flying:
                found = future.exception() if future.done() and not future.cancelled() else None
                if isinstance(found, AdapterError):
                    return found
        return error

"""Connection that sends many messages without waiting for each confirmation."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from redelivery.driver.port import ConnectionPort
from redelivery.errors import AdapterError, RedeliveryError, TransportError

if TYPE_CHECKING:
    from types import TracebackType

    from redelivery.clock import Clock
    from redelivery.core.outgoing import Outgoing
    from redelivery.driver.port import PendingSend

__all__ = ["SendingConnection"]

MOST = 1000  # messages unconfirmed
# Bytes of their bodies; a single larger message is sent alone.
MOST_BYTES = 16 << 20


class SendingConnection:
    """Sends messages; `confirm` waits until the broker has confirmed all of them. Use it as a context manager."""

    def __init__(self, uri: str) -> None:
        self._port = ConnectionPort(uri)
        self._pending: deque[PendingSend] = deque()
        self._bytes = 0
        self.confirmed = 0
        """Number of messages that the broker has confirmed."""

    def __enter__(self) -> Self:
        """Connect. Raises as `ConnectionPort.__enter__` does."""
        self._port.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._port.close()

    @property
    def clock(self) -> Clock:
        """Clock of the connection."""
        return self._port.clock

    def put(self, message: Outgoing, identity: str) -> None:
        """Send a message under this id, once there is room for one more unconfirmed message.

        Raises:
            AdapterError: The broker refused a message.
            TransportError: The connection was lost, or a confirmation did not arrive in time.
        """
        headers = {**message.headers, "redeliveryId": identity}
        own = self._port.capabilities.duplicate_property
        if own is not None:
            headers[own] = identity
        message = replace(message, headers=headers)
        size = len(message.body)
        while self._pending and (len(self._pending) >= MOST or self._bytes + size > MOST_BYTES):
            self._await_first()
        self._pending.append(self._port.send_connected(message))
        self._bytes += size

    def confirm(self) -> int:
        """Wait until the broker has confirmed everything; return the number of messages. Raises as `put`."""
        while self._pending:
            self._await_first()
        return self.confirmed

    def _await_first(self) -> None:
        first = self._pending.popleft()
        self._bytes -= len(first.message.body)
        try:
            first.wait()
        except RedeliveryError as error:
            raise self._cause(error) from None
        self.confirmed += 1

    def _cause(self, error: RedeliveryError) -> RedeliveryError:
        """Return the cause of the failure: the broker's refusal, if the connection was lost because of it."""
        if isinstance(error, TransportError):
            for pending in self._pending:
                if isinstance(pending.error, AdapterError):
                    return pending.error
        return error

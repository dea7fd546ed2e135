"""Asyncio consumer: the application pulls messages one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from redelivery.core.option_values import seconds
from redelivery.driver.arguments import patience
from redelivery.driver.connection.connection_driver import CLOSE_TIMEOUT
from redelivery.driver.consumer.consumer_base import ConsumerBase
from redelivery.driver.waiting import in_own_thread
from redelivery.message import pulled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from datetime import timedelta
    from types import TracebackType

    from redelivery.driver.consumer.dispatcher import Dispatcher
    from redelivery.driver.waiting import AsyncioWait
    from redelivery.message import Message


__all__ = ["AsyncConsumer"]


class AsyncConsumer(ConsumerBase):
    """Consumer of one destination, to pull messages from. Made by `AsyncConnection.consumer`."""

    def __init__(
        self, dispatcher: Dispatcher, waiter: AsyncioWait, unsubscribe: Callable[[Dispatcher, float], None]
    ) -> None:
        super().__init__(dispatcher)
        self._waiter = waiter
        self._unsubscribe = unsubscribe

    async def receive(self, timeout: float | timedelta | None = None) -> Message | None:
        """Return the next message.

        Args:
            timeout: Seconds, or a timedelta, to wait for a message; None: for ever; 0: do not wait.

        Returns:
            The message; None if none arrived in time, or if the consumer was closed.

        Raises:
            ConfigurationError: `timeout` is not a duration, or the consumer's session has a listener.
            AdapterError: The broker ended the consumer.
            TransportError: The connection was lost, and reconnecting was given up.
            LedgerError: The ledger cannot count attempts.
            BreakerOpen: No message succeeded for too long.
        """
        if self._dispatcher.session_state is not None:
            self._dispatcher.session_state.activity.check_pull("receive")
        delivery = await self._waiter.take(self._dispatcher, timeout=patience(timeout))
        return None if delivery is None else pulled(delivery, self._dispatcher)

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Iterate over messages until the consumer closes or drains. Errors as `receive`."""
        while (message := await self.receive()) is not None:
            yield message

    async def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """End the consumer. The broker takes back the unsettled messages.

        Waits until the broker has confirmed the dead letters that were sent.

        Args:
            timeout: Seconds to wait at most. Default 5.

        Raises:
            ConfigurationError: `timeout` is not a duration.
        """
        await in_own_thread(self._unsubscribe, self._dispatcher, seconds(timeout, "timeout"))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

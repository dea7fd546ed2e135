"""Synchronous consumer: the application pulls messages one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from redelivery.adapter_support.keyboard_interrupts import Uninterrupted
from redelivery.core.option_values import seconds
from redelivery.driver.arguments import patience
from redelivery.driver.connection.connection_driver import CLOSE_TIMEOUT
from redelivery.driver.consumer.consumer_base import ConsumerBase
from redelivery.message import pulled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import timedelta
    from types import TracebackType

    from redelivery.driver.consumer.dispatcher import Dispatcher
    from redelivery.message import Message


__all__ = ["Consumer"]


class Consumer(ConsumerBase):
    """Consumer of one destination, to pull messages from. Made by `Connection.consumer`; thread-safe."""

    def __init__(self, dispatcher: Dispatcher, close: Callable[[Dispatcher, float], None]) -> None:
        super().__init__(dispatcher)
        self._close = close

    def receive(self, timeout: float | timedelta | None = None) -> Message | None:
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
        limit, message = patience(timeout), None
        try:
            with Uninterrupted():
                delivery = self._dispatcher.take(None, limit)
                if delivery is not None:
                    message = pulled(delivery, self._dispatcher)
        except BaseException:
            # Ctrl-C interrupted the call after a message was taken: the caller does not get that message.
            if message is not None:
                message.give_back()
            raise
        return message

    def __iter__(self) -> Iterator[Message]:
        """Iterate over messages until the consumer closes or drains. Errors as `receive`."""
        while (message := self.receive()) is not None:
            yield message

    def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """End the consumer. The broker takes back the unsettled messages.

        Waits until the broker has confirmed the dead letters that were sent.

        Args:
            timeout: Seconds to wait at most. Default 5.

        Raises:
            ConfigurationError: `timeout` is not a duration.
        """
        self._close(self._dispatcher, seconds(timeout, "timeout"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Consumer {self.destination} running={self._dispatcher.engine.load.running} parked={self.parked}>"

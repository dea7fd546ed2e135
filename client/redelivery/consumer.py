"""The synchronous consumer: pull messages one by one."""

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
    """Pulls messages from one destination. Made by `Connection.consumer`; safe to share between threads."""

    def __init__(self, dispatcher: Dispatcher, close: Callable[[Dispatcher, float], None]) -> None:
        super().__init__(dispatcher)
        self._close = close

    def receive(self, timeout: float | timedelta | None = None) -> Message | None:
        """Return the next message, or None if none comes within `timeout` seconds (None: wait for ever; 0: poll).

        None also means that the consumer was closed.

        Raises:
            ConfigurationError: `timeout` is no duration, or the consumer's session has a listener.
            AdapterError: the broker ended the consumer.
            TransportError: the connection was lost, and reconnecting was given up.
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
            # Ctrl-C came while it was taken: the caller does not get it.
            if message is not None:
                message.give_back()
            raise
        return message

    def __iter__(self) -> Iterator[Message]:
        """Go through messages until the consumer closes or drains."""
        while (message := self.receive()) is not None:
            yield message

    def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """End the consumer; the broker takes back what is not settled.

        Waits for `timeout` seconds at most (5 by default) until the broker has confirmed dead letters on their way.
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

"""Handlers that take longer than they may: charged when they end, and given up when they do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.core.delivery import Cause
from redelivery.core.events import Discarded, Failed, Succeeded
from redelivery.core.option_values import seconds
from redelivery.errors import ConfigurationError, HandlerTimeout

if TYPE_CHECKING:
    from redelivery.clock import Clock
    from redelivery.core.delivery import Delivery
    from redelivery.core.events import Event
    from redelivery.driver.consumer.dispatcher import Dispatcher

__all__ = ["HandlerDeadline", "overdue_for"]


class HandlerDeadline:
    """Time that each handler of one listener may take."""

    def __init__(self, timeout: float, clock: Clock) -> None:
        self.timeout = timeout
        self.clock = clock

    def end(self, took: float, delivery: Delivery, event: Event | None) -> Event | None:
        """Return what is to be fed for a handler that ended with `event` after so many seconds.

        Too late a success is a failure. Else a message whose handler always takes too long would never come to its end.
        """
        if took > self.timeout and isinstance(event, Succeeded | Discarded):
            return Failed(delivery, Cause.of(self.late()))
        return event

    def late(self) -> HandlerTimeout:
        """Return the cause of what is charged for having taken too long."""
        return HandlerTimeout(f"the handler took longer than {self.timeout:g} s")

    def stuck(self, dispatcher: Dispatcher, delivery: Delivery) -> HandlerTimeout:
        """Return the error for a handler that has not ended within twice its time: nothing can stop a thread."""
        return HandlerTimeout(
            f"a handler of {dispatcher.subscribe.destination} has not ended within {2 * self.timeout:g} s, twice its "
            f"timeout; its message is {delivery.message_id}"
        )


def overdue_for(timeout: object, clock: Clock) -> HandlerDeadline | None:
    """Return what bounds the handlers of a listener; None without a timeout. Raises ConfigurationError."""
    if timeout is None:
        return None
    limit = seconds(timeout, "timeout", none="for no limit")
    if limit <= 0:
        raise ConfigurationError("timeout must be more than 0 seconds; None: no limit", option="timeout")
    return HandlerDeadline(limit, clock)

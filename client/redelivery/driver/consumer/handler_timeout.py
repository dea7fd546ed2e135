"""Time-out of handlers: a handler that ends too late is charged, and one that does not end is given up."""

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
    """Time limit for each handler run of one listener."""

    def __init__(self, timeout: float, clock: Clock) -> None:
        self.timeout = timeout
        self.clock = clock

    def end(self, took: float, delivery: Delivery, event: Event | None) -> Event | None:
        """Return the result to feed for a handler that ended with `event` after `took` seconds.

        A late success counts as a failure: else a message whose handler always takes too long would be redelivered for
        ever.
        """
        if took > self.timeout and isinstance(event, Succeeded | Discarded):
            return Failed(delivery, Cause.of(self.late()))
        return event

    def late(self) -> HandlerTimeout:
        """Return the cause of a failure by a late handler."""
        return HandlerTimeout(f"the handler took longer than {self.timeout:g} s")

    def stuck(self, dispatcher: Dispatcher, delivery: Delivery) -> HandlerTimeout:
        """Return the error for a handler that has not ended within twice its timeout: nothing can stop a thread."""
        return HandlerTimeout(
            f"a handler of {dispatcher.subscribe.destination} has not ended within {2 * self.timeout:g} s, twice its "
            f"timeout; its message is {delivery.message_id}"
        )


def overdue_for(timeout: object, clock: Clock) -> HandlerDeadline | None:
    """Return the deadline for the handlers of a listener; None without a timeout. Raises ConfigurationError."""
    if timeout is None:
        return None
    limit = seconds(timeout, "timeout", none="for no limit")
    if limit <= 0:
        raise ConfigurationError("timeout must be more than 0 seconds; None: no limit", option="timeout")
    return HandlerDeadline(limit, clock)

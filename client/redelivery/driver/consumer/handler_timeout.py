"""Handlers that take longer than they may: charged when they end, and given up when they do not."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from redelivery.core.delivery import Cause
from redelivery.core.events import Discarded, Failed, Succeeded
from redelivery.core.option_values import seconds
from redelivery.errors import ConfigurationError, HandlerTimeout

if TYPE_CHECKING:
    from collections.abc import Generator

    from redelivery.clock import Clock
    from redelivery.core.delivery import Delivery
    from redelivery.core.events import Event
    from redelivery.driver.consumer.dispatcher import Dispatcher

__all__ = ["HandlerDeadline", "overdue_for"]

# How often in a timeout it is asked whether a handler is stuck.
LOOKS = 8
OFTEN, SELDOM = 0.01, 0.2  # seconds between such looks


class HandlerDeadline:
    """The handlers of one listener that run, and since when."""

    def __init__(self, timeout: float, clock: Clock) -> None:
        self.timeout = timeout
        self.interval = max(OFTEN, min(timeout / LOOKS, SELDOM))
        self.clock = clock
        self._since: dict[Delivery, float] = {}

    @contextmanager
    def watching(self, delivery: Delivery) -> Generator[None]:
        """Watch over a handler for as long as it runs, however it ends."""
        self._since[delivery] = self.clock.monotonic()
        try:
            yield
        finally:
            del self._since[delivery]

    def end(self, delivery: Delivery, event: Event | None) -> Event | None:
        """Learn that it has ended with `event`; return what is to be fed: too late a success is a failure.

        Else a message whose handler always takes too long would never come to its end.
        """
        took = self.clock.monotonic() - self._since[delivery]
        if took > self.timeout and isinstance(event, Succeeded | Discarded):
            return Failed(delivery, Cause.of(self.late()))
        return event

    def late(self) -> HandlerTimeout:
        """Return the cause of what is charged for having taken too long."""
        return HandlerTimeout(f"the handler took longer than {self.timeout:g} s")

    def stuck(self, dispatcher: Dispatcher) -> HandlerTimeout | None:
        """Return the end of the run if a handler has not ended within twice its time: nothing can stop a thread."""
        now = self.clock.monotonic()
        stuck = [one for one, since in list(self._since.items()) if now - since >= 2 * self.timeout]
        for delivery in stuck:
            dispatcher.hang(delivery)
        if not stuck:
            return None
        return HandlerTimeout(
            f"a handler of {dispatcher.subscribe.destination} has not ended within {2 * self.timeout:g} s, twice its "
            f"timeout; its message is {stuck[0].message_id}"
        )


def overdue_for(timeout: object, clock: Clock) -> HandlerDeadline | None:
    """Return what watches over the handlers of a listener; None without a timeout. Raises ConfigurationError."""
    if timeout is None:
        return None
    limit = seconds(timeout, "timeout", none="for no limit")
    if limit <= 0:
        raise ConfigurationError("timeout must be more than 0 seconds; None: no limit", option="timeout")
    return HandlerDeadline(limit, clock)

"""What `Consumer` and `AsyncConsumer` have in common: all that does not wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.core.events import Continued, Paused

if TYPE_CHECKING:
    from redelivery.core.breaker import BreakerState
    from redelivery.driver.consumer.dispatcher import Dispatcher

__all__ = ["ConsumerBase"]


class ConsumerBase:
    """The part of `Consumer` and `AsyncConsumer` that does not wait."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    @property
    def destination(self) -> str:
        """What it consumes, qualified: `queue://orders`."""
        return self._dispatcher.subscribe.destination

    @property
    def parked(self) -> int:
        """Messages that wait here for their redelivery."""
        return self._dispatcher.engine.load.parked

    @property
    def breaker_state(self) -> BreakerState:
        """The state of the breaker: `closed`, `open`, `probing` or `ramp`; `closed` without one."""
        return self._dispatcher.engine.load.breaker_state

    @property
    def paused(self) -> bool:
        """Whether it has been paused."""
        return self._dispatcher.engine.load.paused

    def pause(self) -> None:
        """Dispatch no message until `resume`, over reconnects too.

        Messages that the application has go on, and are settled. Delays pass, and nothing is charged. Over AMQP no more
        messages come, and those that wait here and were never dispatched are released, so other consumers get them; on
        RabbitMQ, where some queues count a release, they stay here. A broker that limits how long a message is held
        gets it back in time.
        """
        self._dispatcher.feed(Paused())

    def resume(self) -> None:
        """Dispatch messages again."""
        self._dispatcher.feed(Continued())

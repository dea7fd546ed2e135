"""Common base of `Consumer` and `AsyncConsumer`: all methods that do not wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.core.events import Continued, Paused

if TYPE_CHECKING:
    from redelivery.core.breaker import BreakerState
    from redelivery.driver.consumer.dispatcher import Dispatcher

__all__ = ["ConsumerBase"]


class ConsumerBase:
    """Methods of `Consumer` and `AsyncConsumer` that do not wait."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    @property
    def destination(self) -> str:
        """Destination that it consumes, with its scheme: `queue://orders`."""
        return self._dispatcher.subscribe.destination

    @property
    def parked(self) -> int:
        """Number of parked messages: they wait here for their redelivery."""
        return self._dispatcher.engine.load.parked

    @property
    def breaker_state(self) -> BreakerState:
        """State of the circuit breaker: `closed`, `open`, `probing` or `ramp`; `closed` without one."""
        return self._dispatcher.engine.load.breaker_state

    @property
    def paused(self) -> bool:
        """True if the consumer is paused."""
        return self._dispatcher.engine.load.paused

    def pause(self) -> None:
        """Dispatch no message until `resume`, over reconnects too.

        Handlers that run now finish, and messages that the application has can be settled. Delays of parked messages
        pass, and no redelivery is used up. Over AMQP the broker sends no more messages, and prefetched messages are
        released for other consumers; on RabbitMQ, where some queues count a release, they stay here. If the broker
        limits how long a message may be unsettled, the message is given back in time.
        """
        self._dispatcher.feed(Paused())

    def resume(self) -> None:
        """Dispatch messages again."""
        self._dispatcher.feed(Continued())

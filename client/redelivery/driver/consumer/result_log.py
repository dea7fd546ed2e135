"""Log of results whose engine is fed by someone else than a dispatcher: the Spark source's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.core.commands import Subscribe
from redelivery.driver.consumer.consumer_events import ConsumerEvents
from redelivery.driver.observers import Observers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redelivery.clock import Clock
    from redelivery.core.commands import Command
    from redelivery.core.events import Event
    from redelivery.core.policy.policy_map import RedeliveryPolicyMap

__all__ = ["result_log"]


def result_log(
    destination: str, policies: RedeliveryPolicyMap, clock: Clock
) -> Callable[[Event, Sequence[Command]], None]:
    """Return what logs the results of deliveries whose engine the caller feeds itself, with what follows from them."""
    events = ConsumerEvents(Subscribe(0, destination, 0), clock, policies, Observers())

    def log(event: Event, commands: Sequence[Command]) -> None:
        events.result(event, commands)
        events.observers.emit(events.take())

    return log

"""Log of results of an engine that has no dispatcher: the Spark source feeds it."""

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
    """Return a function that logs a result, with the commands that follow, of an engine that the caller feeds."""
    events = ConsumerEvents(Subscribe(0, destination, 0), clock, policies, Observers())

    def log(event: Event, commands: Sequence[Command]) -> None:
        events.result(event, commands)
        events.observers.emit(events.take())

    return log

"""Open consumers of a connection, and the counters of all consumers that it has ever had."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from redelivery.core.dead_lettering.circles import Circling, refuse_circle
from redelivery.core.dead_lettering.routing import DeadLetterRouting
from redelivery.core.report import Report
from redelivery.driver.connection.destination_counts import DestinationCounts

if TYPE_CHECKING:
    from redelivery.core.capabilities import Capabilities
    from redelivery.driver.consumer.dispatcher import Dispatcher

__all__ = ["OpenConsumers"]


class OpenConsumers:
    """Dispatchers while their consumers are open, and their counters for ever."""

    def __init__(self) -> None:
        self.dispatchers: list[Dispatcher] = []
        """Dispatchers of open consumers; always the same list."""
        self.counts = DestinationCounts()
        """Counters of all consumers, closed ones too; it keeps no dispatcher alive."""
        self._lock = threading.Lock()

    def add(self, dispatcher: Dispatcher, able: Capabilities | None) -> None:
        """Add the dispatcher of a new consumer. `able`: of the broker.

        Raises ConfigurationError if its dead letters come back by way of other consumers.
        """
        with self._lock:
            self._refuse_circle(_circling(dispatcher, able, told=False), able)
            self.dispatchers.append(dispatcher)
            self.counts.add(dispatcher)

    def refuse_circle(self, dispatcher: Dispatcher, able: Capabilities) -> None:
        """Look again, now that the adapter has found the broker's own place of a consumer's dead letters.

        Raises ConfigurationError as `add`.
        """
        with self._lock:
            self._refuse_circle(_circling(dispatcher, able, told=True), able)

    def _refuse_circle(self, new: Circling | None, able: Capabilities | None) -> None:
        if new is None:
            return
        others = [
            found
            for each in self.dispatchers
            if (found := _circling(each, each.engine.capabilities or able, told=True)) is not None
            and found.route is not new.route
        ]
        refuse_circle(new, others)

    def retire(self, dispatcher: Dispatcher) -> None:
        """Remove a dispatcher whose consumer has ended."""
        with self._lock:
            if dispatcher in self.dispatchers:
                self.dispatchers.remove(dispatcher)
                self.counts.retire(dispatcher)

    def report(self) -> Report:
        """Return the totals of the connection."""
        with self._lock:
            loads = [dispatcher.engine.load for dispatcher in self.dispatchers]
            running = sum(load.running for load in loads)
            return Report.of(self.counts.all(), running, sum(load.unconfirmed for load in loads))


def _circling(dispatcher: Dispatcher, able: Capabilities | None, *, told: bool) -> Circling | None:
    """Return a consumer as a part of circles; None: dead letters that it moves are no new ones."""
    route = dispatcher.engine.dead_letters
    if able is None or not isinstance(route, DeadLetterRouting):
        return None
    return Circling(route, able, told)

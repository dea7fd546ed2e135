"""Open consumers of a connection, and the counters of all consumers that it has ever had."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from redelivery.core.report import Report
from redelivery.driver.connection.destination_counts import DestinationCounts

if TYPE_CHECKING:
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

    def add(self, dispatcher: Dispatcher) -> None:
        """Add the dispatcher of a new consumer."""
        with self._lock:
            self.dispatchers.append(dispatcher)
            self.counts.add(dispatcher)

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

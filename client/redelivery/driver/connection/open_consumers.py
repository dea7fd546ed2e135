"""The consumers of a connection that are open, and the counts of all there ever were."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from redelivery.core.report import Report
from redelivery.driver.connection.destination_counts import DestinationCounts

if TYPE_CHECKING:
    from redelivery.driver.consumer.dispatcher import Dispatcher

__all__ = ["OpenConsumers"]


class OpenConsumers:
    """Keeps a dispatcher while its consumer is open, and its counts for ever."""

    def __init__(self) -> None:
        self.dispatchers: list[Dispatcher] = []
        """Those that are open; always the same list."""
        self.counts = DestinationCounts()
        """The counts of all of them; it keeps no dispatcher alive."""
        self._lock = threading.Lock()

    def add(self, dispatcher: Dispatcher) -> None:
        """Take in the dispatcher of a new consumer."""
        with self._lock:
            self.dispatchers.append(dispatcher)
            self.counts.add(dispatcher)

    def retire(self, dispatcher: Dispatcher) -> None:
        """Let go of a dispatcher whose consumer has ended."""
        with self._lock:
            if dispatcher in self.dispatchers:
                self.dispatchers.remove(dispatcher)
                self.counts.retire(dispatcher)

    def report(self) -> Report:
        """Sum up."""
        with self._lock:
            loads = [dispatcher.engine.load for dispatcher in self.dispatchers]
            running = sum(load.running for load in loads)
            return Report.of(self.counts.all(), running, sum(load.unconfirmed for load in loads))

"""Instruments of the metrics: their names, and the storage of their counts.

Counts are kept here, and the SDK reads them when it exports: calling it for each message and count would take
3 µs. Durations must be recorded one by one.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from opentelemetry.metrics import Observation

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Histogram, Meter

    from redelivery.otel.attributes import Attributes

__all__ = ["Cell", "Instruments", "Tally"]

# Seconds. Bounds of the conventions.
SHORT = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
# Seconds. Delays are up to a day.
LONG = (0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400)


class Cell:
    """One number with its attributes."""

    __slots__ = ("attributes", "value")

    def __init__(self, attributes: Attributes) -> None:
        self.attributes = attributes
        self.value = 0


class Tally:
    """Numbers of one instrument. Callable from any thread."""

    def __init__(self) -> None:
        """Start empty."""
        self._lock = threading.Lock()
        self._cells: dict[frozenset[tuple[str, object]], Cell] = {}

    def cell(self, attributes: Attributes) -> Cell:
        """Return the cell for these attributes."""
        with self._lock:
            return self._cells.setdefault(frozenset(attributes.items()), Cell(attributes))

    def add(self, cell: Cell) -> None:
        """Count one more."""
        with self._lock:
            cell.value += 1

    def put(self, cell: Cell, value: int) -> None:
        """Replace a number."""
        with self._lock:
            cell.value = value

    def observe(self, _: CallbackOptions) -> list[Observation]:
        """Return all numbers. Called by the SDK."""
        with self._lock:
            return [Observation(each.value, each.attributes) for each in self._cells.values()]


class Instruments:
    """All instruments of one meter."""

    def __init__(self, meter: Meter) -> None:
        """Create them."""
        self._meter = meter
        self.consumed = self._counter(
            "messaging.client.consumed.messages",
            "{message}",
            "Deliveries to the application, redeliveries too.",
        )
        self.sent = self._counter(
            "messaging.client.sent.messages", "{message}", "Messages that a send was tried for."
        )
        self.outcomes = self._counter(
            "redelivery.outcomes", "{delivery}", "Deliveries, by what became of them."
        )
        self.dead_letters = self._counter(
            "redelivery.dead_letters", "{message}", "Dead letters that the broker has confirmed."
        )
        self.reconnects = self._counter(
            "redelivery.reconnects", "{connection}", "Connections after the first one."
        )
        self.transitions = self._counter(
            "redelivery.breaker.transitions",
            "{transition}",
            "Changes of a circuit breaker, by its new state.",
        )
        self.breaker = Tally()
        meter.create_observable_gauge(
            "redelivery.breaker.state",
            [self.breaker.observe],
            "1",
            "Circuit breaker: 0 closed, 1 on its way to that, 2 open.",
        )
        self.process = self._histogram(
            "messaging.process.duration", "Time for which a handler had a message.", SHORT
        )
        self.operation = self._histogram(
            "messaging.client.operation.duration", "Time of a send, until the broker has confirmed it.", SHORT
        )
        self.delay = self._histogram("redelivery.delay", "Time from a failure to the redelivery.", LONG)

    def _counter(self, name: str, unit: str, description: str) -> Tally:
        tally = Tally()
        self._meter.create_observable_counter(name, [tally.observe], unit, description)
        return tally

    def _histogram(self, name: str, description: str, buckets: tuple[float, ...]) -> Histogram:
        return self._meter.create_histogram(
            name, "s", description, explicit_bucket_boundaries_advisory=buckets
        )

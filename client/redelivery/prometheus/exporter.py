"""Metrics of all connections in one registry.

Counts stay when a connection closes; states are read at each scrape.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import fields
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from redelivery.core.report import Report
from redelivery.events.breaker_states import COUNTED_STATES, counted_state
from redelivery.prometheus.client_library import Collector
from redelivery.prometheus.error_types import dead_letter_type
from redelivery.prometheus.families import Families
from redelivery.prometheus.gauges import add_gauges
from redelivery.prometheus.handled import HandledMessages
from redelivery.prometheus.histogram import DELAYS, Buckets, cumulative
from redelivery.prometheus.label_values import LabelValues

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redelivery.events import BreakerChanged, DeadLettered, ObservedConnection, Sent
    from redelivery.prometheus.client_library import CollectorRegistry, Metric

__all__ = ["OUTCOMES", "Exporter", "exporter_of"]

# Seconds: 100 years. A sum must stay finite.
LONGEST_DELAY = 100 * 365.25 * 86400
# Counts of `Report`; its other fields are states.
OUTCOMES = tuple(field.name for field in fields(Report) if field.name not in ("running", "unconfirmed"))
# Most types of errors that have a label of their own.
MOST_ERRORS = 50
# Most addresses of connections: a program has few brokers.
MOST_CONNECTIONS = 100


class Exporter(Collector):
    """Collector of one registry. It keeps no connection alive, and keeps the counts of closed ones."""

    def __init__(self) -> None:
        # Reentrant: a finalizer may close a connection while this thread holds the lock.
        self._lock = threading.RLock()
        self._destinations = LabelValues(0)
        # Separate: reply queues must not use up the labels of consumed destinations.
        self._sent_to = LabelValues(0)
        self._errors = LabelValues(MOST_ERRORS)
        self._names = LabelValues(MOST_CONNECTIONS)
        self.handled = HandledMessages(self._lock, self._destinations, self._errors)
        self._delays: dict[str, Buckets] = {}
        self._sent: Counter[tuple[str, str]] = Counter()
        self._dead: Counter[tuple[str, str]] = Counter()
        self._transitions: Counter[tuple[str, str]] = Counter()
        self._connections: list[ObservedConnection] = []
        # Of connections that are over.
        self._outcomes: Counter[tuple[str, str]] = Counter()
        self._reconnects: Counter[str] = Counter()

    def allow(self, destinations: int) -> None:
        """Raise the number of destinations that are labels to at least this number."""
        with self._lock:
            for each in (self._destinations, self._sent_to):
                each.most = max(each.most, destinations)

    # Called by observers.

    def attach(self, connection: ObservedConnection) -> None:
        """Add a connection."""
        with self._lock:
            self._drop_over()
            if connection not in self._connections:
                self._connections.append(connection)

    def delayed(self, destination: str, seconds: float) -> None:
        """Count a delay."""
        with self._lock:
            label = self._destinations.of(destination)
            self._delays.setdefault(label, Buckets(DELAYS)).observe(min(seconds, LONGEST_DELAY))

    def sent(self, event: Sent) -> None:
        """Count a send, successful or not."""
        with self._lock:
            error = "" if event.error is None else self._errors.of(type(event.error).__name__)
            self._sent[self._sent_to.of(event.destination), error] += 1

    def dead_lettered(self, event: DeadLettered) -> None:
        """Count a dead letter."""
        with self._lock:
            error = self._errors.of(dead_letter_type(event, self._errors.known))
            self._dead[self._destinations.of(event.destination), error] += 1

    def breaker_changed(self, event: BreakerChanged) -> None:
        """Count a change of a breaker's state.

        Begin and failure of a probe are no changes: a probe is part of `open`.
        """
        old, new = counted_state(event.old), counted_state(event.new)
        if old != new:
            with self._lock:
                self._transitions[self._destinations.of(event.destination), new] += 1

    # Called by the registry.

    def describe(self) -> Iterable[Metric]:
        """Return the metrics without samples: registering reads their names."""
        return Families().all

    def collect(self) -> Iterable[Metric]:
        """Return all metrics. Callable from any thread, while messages are handled."""
        families = Families()
        with self._lock:
            self._drop_over()
            connections = tuple(self._connections)
            outcomes, reconnects = self._outcomes.copy(), self._reconnects.copy()
        states = [(each.name, each.health()) for each in connections]
        with self._lock:
            for each in connections:
                self._count(each, outcomes, reconnects)
            add_gauges(families, states, self._destinations, self._names)
            self._add_counts(families, outcomes)
            for name, count in reconnects.items():
                families.reconnects.add_metric((name,), count)
        return families.all

    def _drop_over(self) -> None:
        """Drop connections that are over; keep their counts."""
        for each in [each for each in self._connections if each.over]:
            self._connections.remove(each)
            self._count(each, self._outcomes, self._reconnects)

    def _count(
        self, connection: ObservedConnection, outcomes: Counter[tuple[str, str]], reconnects: Counter[str]
    ) -> None:
        """Add the counts of a connection."""
        reconnects[self._names.of(connection.name)] += connection.reconnects()
        for destination, report in connection.reports().items():
            label = self._destinations.of(destination)
            for outcome in OUTCOMES:
                outcomes[label, outcome] += getattr(report, outcome)

    def _add_counts(self, families: Families, outcomes: Counter[tuple[str, str]]) -> None:
        for destination in {destination for destination, _ in outcomes}:
            # Series start at 0: Prometheus sees no increase in the first sample of a series.
            self._transitions.update({(destination, state): 0 for state in COUNTED_STATES})
        for (destination, outcome), count in outcomes.items():
            families.outcomes.add_metric((destination, outcome), count)
        for series, buckets in self.handled.totals().items():
            families.consumed.add_metric(series, buckets.counted)
            if any(buckets.counts):
                families.durations.add_metric(series, *cumulative(buckets))
        for destination, buckets in self._delays.items():
            families.delays.add_metric((destination,), *cumulative(buckets))
        for family, counts in (
            (families.sent, self._sent),
            (families.dead_letters, self._dead),
            (families.transitions, self._transitions),
        ):
            for labels, count in counts.items():
                family.add_metric(labels, count)


_EXPORTERS: WeakKeyDictionary[CollectorRegistry, Exporter] = WeakKeyDictionary()
_MAKING = threading.Lock()


def exporter_of(registry: CollectorRegistry) -> Exporter:
    """Return the one exporter of a registry.

    Raises:
        ValueError: The registry has another metric of one of its names.
    """
    with _MAKING:
        found = _EXPORTERS.get(registry)
        if found is None:
            found = Exporter()
            registry.register(found)
            _EXPORTERS[registry] = found
        return found

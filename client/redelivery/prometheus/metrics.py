"""Metrics for Prometheus: the observer that counts, and their names, labels, histograms and exposition."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter, defaultdict
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar, cast
from weakref import WeakKeyDictionary, ref

from redelivery.core.option_values import whole
from redelivery.core.report import Report
from redelivery.events import BreakerChanged, DeadLettered, Observer
from redelivery.events.event import COUNTED_STATES, counted_state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from redelivery.events import Event, Finished, ObservedConnection, Sent
    from redelivery.health import ConnectionHealth, ConsumerHealth, Health

__all__ = ["Families", "HandledMessages", "LabelValues", "Metrics", "exporter_of", "text"]


# ---- Client library --------------------------------------------------------------------------------------
# Import of prometheus-client, in this module only.

try:
    from prometheus_client import REGISTRY, CollectorRegistry, generate_latest
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import Collector
except ImportError as error:
    raise ImportError(
        "redelivery.prometheus needs prometheus-client 0.20 or newer; pip install 'redelivery[prometheus]'"
    ) from error


# ---- Error types -----------------------------------------------------------------------------------------
# Types of errors as labels: names of classes, never a reason that an application has written.

# Of a failure without an exception, as `message.fail("no stock")`.
NO_EXCEPTION = "other"
# Exceptions of the library with which causes begin, even if no handler has raised them.
OWN = frozenset(("Defer", "HandlerTimeout", "Poison"))


def failure_type(result: Finished) -> str:
    """Return the type of error of a result; empty: it did not fail.

    A handler that raises `Defer` or `Discard` did not fail, nor did a released message.
    """
    if result.verdict == "defer":
        return "Defer" if result.outcome in ("redelivered", "poisoned") else ""
    if result.verdict not in ("failed", "poison"):
        return ""
    named, error = result.cause_type, result.error
    if error is None:
        # The cause was given to `fail` or `poison`: an exception, whose type this is, or a text, which has none.
        return named or NO_EXCEPTION
    names = set(_names(error))
    return named if named is not None and named in names else type(error).__name__


def dead_letter_type(event: DeadLettered, seen: Callable[[str], bool]) -> str:
    """Return the type of error of a dead letter. `seen`: True if a handler has raised a type of that name.

    The cause is text, which an application may have written: its first word counts as a type only if it was
    seen before.
    """
    named = event.cause_type
    if named is not None and (named in OWN or seen(named) or named == "expired"):
        return named
    return NO_EXCEPTION


def _names(error: BaseException) -> Iterator[str]:
    """Iterate over the type names of an exception and, if it is a group, of the exceptions in it."""
    yield type(error).__name__
    if isinstance(error, BaseExceptionGroup):
        for each in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from _names(each)


# ---- Families --------------------------------------------------------------------------------------------
# Names, helps and labels of the metrics.

FamilyT = TypeVar("FamilyT", bound=Metric)
# Names and labels of OpenTelemetry's semantic conventions 1.45.0.
MESSAGING = ("messaging_destination_name", "error_type")
ERRORS = ("destination", "error_type")


class Families:
    """Metric families of one scrape, without samples at first."""

    def __init__(self) -> None:
        self.all: list[Metric] = []
        counter, gauge, histogram = self._counter, self._gauge, self._histogram
        # Of messages.
        self.durations = histogram(
            "messaging_process_duration_seconds", "Seconds that a handler took", MESSAGING
        )
        self.consumed = counter(
            "messaging_client_consumed_messages", "Deliveries that have a result", MESSAGING
        )
        self.sent = counter("messaging_client_sent_messages", "Messages that were sent", MESSAGING)
        self.outcomes = counter("redelivery_outcomes", "Results of deliveries", ("destination", "outcome"))
        self.dead_letters = counter("redelivery_dead_letters", "Dead letters that are confirmed", ERRORS)
        self.delays = histogram("redelivery_delay_seconds", "Seconds until a redelivery", ("destination",))
        # Of consumers.
        self.parked = gauge("redelivery_parked", "Failed messages that are kept until they are due")
        self.oldest_parked = gauge(
            "redelivery_oldest_parked_seconds", "Seconds since the first failure of the oldest parked message"
        )
        self.running = gauge("redelivery_running", "Messages that the application has unsettled")
        self.unconfirmed = gauge("redelivery_unconfirmed", "Dead letters that are not confirmed")
        self.ready = gauge("redelivery_ready", "Messages that wait for a worker")
        self.credit = gauge("redelivery_credit", "Messages that may be unsettled, without parked ones")
        self.breaker = gauge("redelivery_breaker_state", "0: closed, 1: ramp, 2: open")
        self.transitions = counter(
            "redelivery_breaker_transitions", "Changes to a state", ("destination", "state")
        )
        # Of connections.
        self.connected = gauge("redelivery_connected", "1: the connection stands", "connection")
        self.reconnects = counter("redelivery_reconnects", "Connections after the first one", ("connection",))
        self.workers_alive = gauge("redelivery_workers_alive", "Workers that have not ended", "connection")
        self.info = gauge(
            "redelivery_info", "The broker of the last connection", "connection", "broker", "version"
        )

    def _add(self, family: FamilyT) -> FamilyT:
        self.all.append(family)
        return family

    def _counter(self, name: str, text: str, labels: tuple[str, ...]) -> CounterMetricFamily:
        return self._add(CounterMetricFamily(name, text, labels=labels))

    def _gauge(self, name: str, text: str, *labels: str) -> GaugeMetricFamily:
        return self._add(GaugeMetricFamily(name, text, labels=labels or ("destination",)))

    def _histogram(self, name: str, text: str, labels: tuple[str, ...]) -> HistogramMetricFamily:
        return self._add(HistogramMetricFamily(name, text, labels=labels))


# ---- Label values ----------------------------------------------------------------------------------------
# Values of one label: a limited number, each valid in the exposition.

OTHER = "other"
# Characters. Names of destinations and of classes are shorter.
LONGEST = 200


class LabelValues:
    """The first names, up to a limit; `other` for all later ones. Call it with a lock held."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._known: dict[str, str] = {}

    def of(self, name: str) -> str:
        """Return the value for a name; the same one each time."""
        found = self._known.get(name)
        if found is not None:
            return found
        if len(self._known) >= self.most:
            return OTHER
        # Lone surrogates cannot be encoded as UTF-8: one of them would fail the whole scrape.
        shown = name[:LONGEST].encode("utf-8", "replace").decode("utf-8")
        self._known[name] = shown
        return shown

    def known(self, name: str) -> bool:
        """True if a name has a value of its own."""
        return name in self._known


# ---- Histogram -------------------------------------------------------------------------------------------
# Histograms that are cheap to write, and are added up when they are read.

# Seconds: those of OpenTelemetry for `messaging.process.duration`, semantic conventions 1.45.0.
DURATIONS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
# Seconds. The default delay is a second; a dependency may be down for a day.
DELAYS = (0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)


class Buckets:
    """Counts of one series. One thread writes, without a lock; any thread may read."""

    __slots__ = ("bounds", "counts", "total", "unmeasured")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0
        """Sum of the observed values."""
        self.unmeasured = 0
        """Number counted without a value, minus the number of values that are not to be counted yet."""

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def counted(self) -> int:
        """Number counted, with a value and without."""
        return sum(self.counts) + self.unmeasured

    def add(self, other: Buckets) -> None:
        """Add the counts of another one. If it is written meanwhile, the sum may lag behind by a value."""
        # One step of the interpreter: all counts are from the same moment.
        counts = other.counts[:]
        self.total += other.total
        self.unmeasured += other.unmeasured
        self.counts = [mine + its for mine, its in zip(self.counts, counts, strict=True)]


def cumulative(buckets: Buckets) -> tuple[list[tuple[str, float]], float]:
    """Return the buckets in the form of the exposition, and the sum of the values."""
    found: list[tuple[str, float]] = []
    below = 0
    names = [*(repr(bound) for bound in buckets.bounds), "+Inf"]
    for name, count in zip(names, buckets.counts, strict=True):
        below += count
        found.append((name, below))
    return found, buckets.total


# ---- Handled ---------------------------------------------------------------------------------------------
# Durations of handlers, by destination and type of error, counted by each thread for itself.
#
# `x += 1` is not atomic, and a lock takes 0.15 µs a message. Each thread has its own counts, which no other
# thread writes: no count is lost. The lock is held only to make new series, and to add all up.

Series = tuple[str, str]
"""Label values: destination, and type of error, which is empty for a message that did not fail."""


class OneThread:
    """Counts of one thread. The object ends with its thread; `rows` stay."""

    __slots__ = ("__weakref__", "rows", "succeeded")

    def __init__(self) -> None:
        self.rows: dict[Series, Buckets] = {}
        self.succeeded: dict[str, Buckets] = {}
        """Counts of messages that did not fail, by the consumer's destination: looked up for each message."""


class OfThisThread(threading.local):
    """Reference from a thread to its own counts."""

    mine: OneThread | None = None


class HandledMessages:
    """Durations of all threads."""

    def __init__(self, lock: threading.RLock, destinations: LabelValues, errors: LabelValues) -> None:
        self.local = OfThisThread()
        self._lock = lock
        self._destinations = destinations
        self._errors = errors
        self._ended: dict[Series, Buckets] = {}
        self._threads: list[tuple[ref[OneThread], dict[Series, Buckets]]] = []

    def buckets(self, destination: str, error_type: str) -> Buckets:
        """Return this thread's counts of a series."""
        with self._lock:
            mine = self.local.mine or self._begin()
            series = self._destinations.of(destination), self._errors.of(error_type) if error_type else ""
            found = mine.rows.get(series)
            if found is None:
                found = mine.rows[series] = Buckets(DURATIONS)
            if not error_type and self._destinations.known(destination):
                mine.succeeded[destination] = found
            return found

    def _begin(self) -> OneThread:
        """Start the counts of a thread, and add up those of ended threads."""
        self._add_up_ended()
        mine = self.local.mine = OneThread()
        self._threads.append((ref(mine), mine.rows))
        return mine

    def _add_up_ended(self) -> None:
        alive: list[tuple[ref[OneThread], dict[Series, Buckets]]] = []
        for thread, rows in self._threads:
            if thread() is None:
                _add(self._ended, rows)
            else:
                alive.append((thread, rows))
        self._threads = alive

    def totals(self) -> dict[Series, Buckets]:
        """Add up the counts of all threads."""
        with self._lock:
            self._add_up_ended()
            found: dict[Series, Buckets] = {}
            for rows in (self._ended, *(rows for _, rows in self._threads)):
                _add(found, rows)
            return found


def _add(to: dict[Series, Buckets], rows: dict[Series, Buckets]) -> None:
    for series, buckets in rows.items():
        to.setdefault(series, Buckets(buckets.bounds)).add(buckets)


# ---- Gauges ----------------------------------------------------------------------------------------------
# States of connections and consumers at a scrape.

STATES = {"off": 0, "closed": 0, "ramp": 1, "open": 2, "probing": 2}


def add_gauges(
    families: Families,
    states: Iterable[tuple[str, Health | None]],
    destinations: LabelValues,
    names: LabelValues,
) -> None:
    """Add the samples; for several connections or consumers with one label, the sum or the worst.

    `states`: names of connections, each with its health, or None if the connection is gone.
    """
    consumers: dict[str, list[ConsumerHealth]] = defaultdict(list)
    connections: dict[str, list[Health]] = defaultdict(list)
    for name, health in states:
        if health is not None:
            connections[names.of(name)].append(health)
            # Consumers without credit have not been started.
            for each in (each for each in health.consumers if each.credit):
                consumers[destinations.of(each.destination)].append(each)
    for destination, found in consumers.items():
        _add_consumers(families, destination, found)
    for name, healths in connections.items():
        _add_connections(families, name, healths)


def _add_consumers(families: Families, destination: str, found: list[ConsumerHealth]) -> None:
    label = (destination,)
    families.parked.add_metric(label, sum(each.parked for each in found))
    families.oldest_parked.add_metric(label, max(each.oldest_parked_s for each in found))
    families.running.add_metric(label, sum(each.running for each in found))
    families.unconfirmed.add_metric(label, sum(each.unconfirmed for each in found))
    families.ready.add_metric(label, sum(each.ready for each in found))
    families.credit.add_metric(label, sum(each.credit for each in found))
    families.breaker.add_metric(label, max(STATES[each.breaker] for each in found))


def _add_connections(families: Families, name: str, healths: list[Health]) -> None:
    families.connected.add_metric((name,), min(each.connection.connected for each in healths))
    families.workers_alive.add_metric(
        (name,), sum(consumer.workers_alive for each in healths for consumer in each.consumers)
    )
    for broker, version in sorted({_broker(each.connection) for each in healths if each.connection.broker}):
        families.info.add_metric((name, broker, version), 1)


def _broker(connection: ConnectionHealth) -> tuple[str, str]:
    """Return the name and the version."""
    name, _, version = connection.broker.partition(" ")
    return name, version


# ---- Exporter --------------------------------------------------------------------------------------------
# Metrics of all connections in one registry.
#
# Counts stay when a connection closes; states are read at each scrape.

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


# ---- Metrics ---------------------------------------------------------------------------------------------
# Observer that counts for Prometheus.


class Metrics(Observer):
    """Metrics of its connections: `connect(uri, observers=[Metrics()])`.

    One may be given to several connections. All metrics of one registry are added up. The counts stay when a
    connection closes.
    """

    event_types = (BreakerChanged, DeadLettered)

    def __init__(self, registry: CollectorRegistry = REGISTRY, destinations: int = 100) -> None:
        """Register the metrics, unless another `Metrics` has done so in this registry.

        Args:
            registry: Registry of prometheus-client. Default: its default registry.
            destinations: Most destinations that are labels, 1 to 1000; the first ones that occur. Later ones
                are counted together as `other`. The largest number given for a registry counts.

        Raises:
            ConfigurationError: `destinations` is out of range.
            ValueError: The registry has another metric of one of these names.
        """
        most = whole(destinations, "destinations", 1, 1000)
        self._exporter = exporter_of(registry)
        self._exporter.allow(most)
        self._handled = self._exporter.handled
        self._local = self._handled.local

    def attached(self, connection: ObservedConnection) -> None:
        """Export the state and the counts of a connection."""
        self._exporter.attach(connection)

    def finished(self, token: Any, result: Finished) -> None:  # noqa: ARG002 - nothing was begun
        """Count a delivery and the seconds that its handler took."""
        mine, destination, error = self._local.mine, result.destination, ""
        if result.details.verdict != "succeeded":
            error = failure_type(result)
            if result.delay is not None:
                self._exporter.delayed(destination, result.delay)
        buckets = None if error or mine is None else mine.succeeded.get(destination)
        if buckets is None:
            buckets = self._handled.buckets(destination, error)
        seconds = result.seconds
        if seconds is None:
            buckets.unmeasured += 1
            return
        buckets.observe(seconds)
        if result.details.outcome is None:
            # Its session has not committed it yet, and reports it again with the commit.
            buckets.unmeasured -= 1

    def sent(self, token: Any, result: Sent) -> None:  # noqa: ARG002 - nothing was begun
        """Count a message that was sent."""
        self._exporter.sent(result)

    def event(self, event: Event) -> None:
        """Count a dead letter, or a change of a breaker."""
        if isinstance(event, DeadLettered):
            self._exporter.dead_lettered(event)
        elif isinstance(event, BreakerChanged):
            self._exporter.breaker_changed(event)


def text(registry: CollectorRegistry = REGISTRY) -> bytes:
    """Return the body of `/metrics`; its content type is `prometheus_client.CONTENT_TYPE_LATEST`."""
    return generate_latest(registry)

"""Observer that makes spans and metrics of the events of a connection."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from opentelemetry import metrics, trace
from opentelemetry.metrics import Observation

from redelivery import __version__
from redelivery.events import BreakerChanged, Connected, DeadLettered, Deduplicated, Observer
from redelivery.events.event import counted_state
from redelivery.otel.attributes import OTHER, Operation, broker_attributes, error_type, named, template_of
from redelivery.otel.spans import Ended, ProcessSpan, Remembered, end_send, settle_span, started_send

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

    from opentelemetry.metrics import CallbackOptions, Histogram, Meter, MeterProvider
    from opentelemetry.trace import Span, Tracer, TracerProvider

    from redelivery.core.breaker import BreakerState
    from redelivery.events import Event, Finished, MessageEvent, Sent
    from redelivery.message import Message
    from redelivery.otel.attributes import Attributes

__all__ = ["Instruments", "Measures", "Telemetry", "instruments_of"]


# ---- Measures --------------------------------------------------------------------------------------------
# Metrics of one connection. The attributes of each number are made once.

# Further ones are counted together: producers may make up destinations, and a cause may be any text.
_DESTINATIONS = 200
_ERRORS = 50
_OTHER_DESTINATION = "queue://other"
_STATES: dict[BreakerState, int] = {"closed": 0, "ramp": 1, "open": 2, "probing": 2}


class Measures:
    """Counts and durations of one connection to one broker."""

    def __init__(self, instruments: Instruments, common: Attributes) -> None:
        """Take the instruments, and the broker's attributes."""
        self._to = instruments
        self._common = common
        self._cells: dict[tuple[object, ...], Cell] = {}
        self._attributes: dict[tuple[str, str, str | None], Attributes] = {}
        self._places: set[str] = set()
        self._errors: set[str] = set()

    def finished(self, result: Finished, *, again: bool) -> None:
        """Record a result. `again`: its delivery was recorded before, when its handler ended."""
        to, place, seconds = self._to, self._place(result.destination), result.seconds
        if not again:
            redelivered = result.delivery_count > 1 or result.delivery.redelivered
            self._count(to.consumed, "process", place, "redelivery.redelivered", value=redelivered)
        if result.outcome is not None:
            self._count(to.outcomes, "", place, "redelivery.outcome", value=result.outcome)
        if seconds is not None:
            to.process.record(seconds, self._described("process", place, self._bounded(error_type(result))))
        if result.delay is not None:
            to.delay.record(result.delay, self._described("", place))

    def deduplicated(self, event: MessageEvent) -> None:
        """Count a delivery that was acknowledged without being handled."""
        place = self._place(event.destination)
        self._count(self._to.outcomes, "", place, "redelivery.outcome", value="deduplicated")

    def dead_lettered(self, event: DeadLettered) -> None:
        """Count a dead letter."""
        place, error = self._place(event.destination), self._bounded(event.cause_type or OTHER)
        self._count(self._to.dead_letters, "", place, "error.type", value=error)

    def sent(self, event: Sent) -> None:
        """Record the end of a send."""
        place = self._place(event.destination)
        error = self._bounded(None if event.error is None else type(event.error).__name__)
        attributes = self._described("send", place, error)
        self._count(self._to.sent, "send", place, "error.type", value=error)
        self._to.operation.record(event.seconds, attributes)

    def reconnected(self) -> None:
        """Count a connection after the first one."""
        self._to.reconnects.add(self._to.reconnects.cell(self._common))

    def breaker(self, event: BreakerChanged) -> None:
        """Record a change of the breaker. Begin and failure of a probe are no changes: it is part of `open`."""
        place = self._place(event.destination)
        old, new = counted_state(event.old), counted_state(event.new)
        if new != old:
            self._count(self._to.transitions, "", place, "redelivery.breaker.state", value=new)
        self._to.breaker.put(self._to.breaker.cell(self._described("", place)), _STATES[event.new])

    def _count(
        self, tally: Tally, operation: str, place: str, name: str, *, value: str | bool | None
    ) -> None:
        key = tally, place, value
        cell = self._cells.get(key)
        if cell is None:
            own = {} if value is None else {name: value}
            cell = self._cells[key] = tally.cell({**self._described(operation, place), **own})
        tally.add(cell)

    def _described(self, operation: str, place: str, error: str | None = None) -> Attributes:
        """Return the kept attributes for a destination. The caller must not change them."""
        key = operation, place, error
        found = self._attributes.get(key)
        if found is None:
            found = self._common | named(place)[1]
            if (template := template_of(place)) is not None:
                found["messaging.destination.template"] = template
                del found["messaging.destination.name"]
            if operation:
                found["messaging.operation.name"] = operation
            if error is not None:
                found["error.type"] = error
            self._attributes[key] = found
        return found

    def _place(self, destination: str) -> str:
        """Return a destination; one name for all temporary ones, and one for those after the first 200."""
        if destination not in self._places:
            kind, _, _ = destination.partition("://")
            if kind.startswith("temp-"):
                return f"{kind}://temporary"
            if len(self._places) >= _DESTINATIONS:
                return _OTHER_DESTINATION
            self._places.add(destination)
        return destination

    def _bounded(self, error: str | None) -> str | None:
        if error is not None and error not in self._errors:
            if len(self._errors) >= _ERRORS:
                return OTHER
            self._errors.add(error)
        return error


# ---- Instruments -----------------------------------------------------------------------------------------
# Instruments of the metrics: their names, and the storage of their counts.
#
# Counts are kept here, and the SDK reads them when it exports: calling it for each message and count would take
# 3 µs. Durations must be recorded one by one.

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


# ---- Providers -------------------------------------------------------------------------------------------
# Providers of tracers and meters that the application has set up, before or after it has connected.
#
# Without an SDK nothing is done for a message: the tracers and meters of the API record nothing.

T = TypeVar("T")

_NAME = "redelivery"
# Seconds. The API reads the environment at each call, which takes a microsecond.
LOOK_AGAIN = 1.0


class Lookup(Generic[T]):
    """Object that may appear later. Until it is found, it is looked for at most once a second."""

    def __init__(self, look: Callable[[], T | None]) -> None:
        """Look for the first time."""
        self._look = look
        self.found: T | None = look()
        """The object, or None while there is none."""
        self._next = time.monotonic() + LOOK_AGAIN

    def again(self) -> T | None:
        """Return the object if it is there by now."""
        now = time.monotonic()
        if self.found is None and now >= self._next:
            self._next = now + LOOK_AGAIN
            self.found = self._look()
        return self.found


def tracer_of(given: TracerProvider | None, version: str) -> Tracer | None:
    """Return the tracer of a provider (None: the global one); None if nothing would be recorded."""
    provider = given or trace.get_tracer_provider()
    if _pretends(provider):
        return None
    tracer = provider.get_tracer(_NAME, version)
    # The tracer of an SDK that is switched off records nothing either.
    return None if _pretends(tracer) else tracer


# One set of instruments for each provider: all connections count together, and no instrument is registered twice.
_instruments: WeakKeyDictionary[MeterProvider, Instruments] = WeakKeyDictionary()


def instruments_of(given: MeterProvider | None, version: str) -> Instruments | None:
    """Return the instruments of a provider (None: the global one); None if nothing would be recorded."""
    provider = given or metrics.get_meter_provider()
    if _pretends(provider):
        return None
    found = _instruments.get(provider)
    if found is None:
        meter = provider.get_meter(_NAME, version)
        if _pretends(meter):
            return None
        found = _instruments.setdefault(provider, Instruments(meter))
    return found


def _pretends(thing: object) -> bool:
    """True if an object is one of the API itself, which records nothing."""
    return type(thing).__module__.startswith(("opentelemetry.trace", "opentelemetry.metrics"))


# ---- Telemetry -------------------------------------------------------------------------------------------


class _Broker:
    """Objects that are made once for each broker of the connection."""

    def __init__(self, common: Attributes) -> None:
        self.common = common
        self.send = Operation("send", common)
        self.process = Operation("process", common)
        self.settle = Operation("settle", common)
        self.measures: Measures | None = None


class Telemetry(Observer):
    """Spans and metrics of one connection by OpenTelemetry, for `connect(uri, observers=[Telemetry()])`.

    A send is a span `send orders`; the headers of its message carry its context. Each delivery to a handler
    is a span `process orders`, which is current while the handler runs. A confirmed dead letter is a span
    `settle orders`. While the application has no SDK set up, no span and no metric is made.

    Make one for each connection: the broker's address is in its spans.
    """

    event_types = (Connected, DeadLettered, Deduplicated, BreakerChanged)

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        links_only: bool = True,
    ) -> None:
        """Take the providers of spans and metrics.

        Args:
            tracer_provider: Provider of spans. None: the global provider, which may be set later. For no
                spans, give `opentelemetry.trace.NoOpTracerProvider()`.
            meter_provider: Provider of metrics. None: the global provider, which may be set later. For no
                metrics, give `opentelemetry.metrics.NoOpMeterProvider()`.
            links_only: True: each `process` span is the root of a trace of its own, linked to the producer's
                span, as the conventions require. False: it is a child of the producer's span, in the
                producer's trace.
        """
        self._links_only = links_only
        self._tracers = Lookup(partial(tracer_of, tracer_provider, __version__))
        self._meters = Lookup(partial(instruments_of, meter_provider, __version__))
        self._broker = _Broker({})
        # Runs whose dead letter is not confirmed, by the record of the message.
        self._poisoned = Remembered()
        # Runs of a session that has not committed them, by delivery.
        self._uncommitted = Remembered()
        # Most events have other types: arrivals of messages.
        self._acts: dict[type[Event], Callable[[Any], None]] = {
            Connected: self._connected,
            DeadLettered: self._dead_lettered,
            Deduplicated: self._deduplicated,
            BreakerChanged: self._breaker,
        }

    def started(self, message: Message) -> object:
        """Start a span, and make it current."""
        tracer = self._tracers.found or self._tracers.again()
        if tracer is None:
            return None
        return ProcessSpan(tracer, self._broker.process, message, links_only=self._links_only)

    def finished(self, token: Any, result: Finished) -> None:
        """Count the delivery, and end its span."""
        span: ProcessSpan | None = token
        before, ended = False, None
        if result.message is None:
            before, ended = self._uncommitted.take(result.delivery)
        try:
            measures = self._measures()
            if measures is not None:
                measures.finished(result, again=before)
        finally:
            if span is not None:
                span.end(result)
                ended = Ended(span.span_context, time.time_ns())
        if result.outcome is None:
            self._uncommitted.put(result.delivery, ended)
        elif result.outcome == "poisoned" and ended is not None:
            self._poisoned.put(result.delivery.record, ended)

    def sending(self, destination: str, headers: MutableMapping[str, Any]) -> object:
        """Start a span, and add it to the headers."""
        tracer = self._tracers.found or self._tracers.again()
        return None if tracer is None else started_send(tracer, self._broker.send, destination, headers)

    def sent(self, token: Any, result: Sent) -> None:
        """Count the message, and end its span."""
        span: Span | None = token
        try:
            measures = self._measures()
            if measures is not None:
                measures.sent(result)
        finally:
            if span is not None:
                end_send(span, result)

    def event(self, event: Event) -> None:
        """Record connections, dead letters, and changes of the breaker."""
        act = self._acts.get(type(event))
        if act is not None:
            act(event)

    def _measures(self) -> Measures | None:
        broker = self._broker
        if broker.measures is None:
            instruments = self._meters.found or self._meters.again()
            if instruments is not None:
                broker.measures = Measures(instruments, broker.common)
        return broker.measures

    def _connected(self, event: Connected) -> None:
        common = broker_attributes(event.broker, event.address)
        if common != self._broker.common:
            self._broker = _Broker(common)
        if event.again and (measures := self._measures()) is not None:
            measures.reconnected()

    def _deduplicated(self, event: Deduplicated) -> None:
        if (measures := self._measures()) is not None:
            measures.deduplicated(event)

    def _breaker(self, event: BreakerChanged) -> None:
        if (measures := self._measures()) is not None:
            measures.breaker(event)

    def _dead_lettered(self, event: DeadLettered) -> None:
        _, ended = self._poisoned.take(event.delivery.record)
        if ended is None:
            # The broker may answer a rollback before the observers get its result.
            ended = self._uncommitted.look(event.delivery)
        if (measures := self._measures()) is not None:
            measures.dead_lettered(event)
        tracer = self._tracers.found or self._tracers.again()
        if tracer is not None:
            settle_span(tracer, self._broker.settle, event, ended)

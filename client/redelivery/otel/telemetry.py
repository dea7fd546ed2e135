"""Observer that makes spans and metrics of the events of a connection."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

from redelivery import __version__
from redelivery.events import BreakerChanged, Connected, DeadLettered, Deduplicated, Observer
from redelivery.otel.attributes import Operation, broker_attributes
from redelivery.otel.dead_letter_spans import Ended, Remembered, settle_span
from redelivery.otel.measures import Measures
from redelivery.otel.process_span import ProcessSpan
from redelivery.otel.providers import Lookup, instruments_of, tracer_of
from redelivery.otel.send_span import end_send, started_send

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

    from redelivery.events import Event, Finished, Sent
    from redelivery.message import Message
    from redelivery.otel.attributes import Attributes

__all__ = ["Telemetry"]


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

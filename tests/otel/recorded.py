"""Records of an SDK, in a form that tests compare."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from redelivery import RedeliveryPolicy, RedeliveryPolicyMap
from redelivery.otel import Telemetry

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

__all__ = ["ONCE", "PRODUCER", "Recorded", "attributes", "linked", "span_id"]

ONCE = RedeliveryPolicyMap(default=RedeliveryPolicy(maximum_redeliveries=1))
PRODUCER = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
"""Headers of a message whose producer is traced."""
PRODUCER_SPAN = 0xB7AD6B7169203331
PRODUCER_TRACE = 0x0AF7651916CD43DD8448EB211C80319C


class Recorded(NamedTuple):
    """SDK, and its records."""

    tracers: TracerProvider
    meters: MeterProvider
    exporter: InMemorySpanExporter
    reader: InMemoryMetricReader

    def telemetry(self, *, links_only: bool = True) -> Telemetry:
        """Return an observer that records to this SDK."""
        return Telemetry(self.tracers, self.meters, links_only=links_only)

    def spans(self, name: str = "") -> list[ReadableSpan]:
        """Return the ended spans whose names begin with a text."""
        return [each for each in self.exporter.get_finished_spans() if each.name.startswith(name)]

    def points(self, name: str) -> list[Any]:
        """Return the data points of a metric."""
        data = self.reader.get_metrics_data()
        scopes = (
            [] if data is None else [scope for each in data.resource_metrics for scope in each.scope_metrics]
        )
        return [
            point
            for scope in scopes
            for each in scope.metrics
            if each.name == name
            for point in each.data.data_points
        ]

    def counts(self, name: str, by: str) -> dict[Any, int]:
        """Return the numbers of a counter by one of its attributes."""
        found: dict[Any, int] = {}
        for point in self.points(name):
            key = point.attributes.get(by)
            found[key] = found.get(key, 0) + point.value
        return found


def span_id(span: ReadableSpan) -> int:
    """Return the id of a span."""
    assert span.context is not None
    found: int = span.context.span_id
    return found


def linked(span: ReadableSpan) -> list[int]:
    """Return the ids of the spans that a span is linked to."""
    return [each.context.span_id for each in span.links]


def attributes(span: ReadableSpan) -> dict[str, Any]:
    """Return the attributes of a span."""
    return dict(span.attributes or {})

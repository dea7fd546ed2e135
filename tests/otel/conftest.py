"""Both kinds of connection, and an SDK that keeps what it records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.driver.conftest import nothing_left, twin, watch
from tests.otel.recorded import Recorded

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["nothing_left", "twin", "watch"]


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    """Return an SDK for this test only, and its records."""
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers, meters = TracerProvider(), MeterProvider([reader])
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    yield Recorded(tracers, meters, exporter, reader)
    tracers.shutdown()
    meters.shutdown()

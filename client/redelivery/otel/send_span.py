"""Span of one send. The headers of its message carry its context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from opentelemetry.trace import SpanKind

from redelivery.otel.process_span import status_of
from redelivery.otel.propagation import inject

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from opentelemetry.trace import Span, Tracer

    from redelivery.events import Sent
    from redelivery.otel.attributes import Operation

__all__ = ["end_send", "started_send"]


def started_send(
    tracer: Tracer, operation: Operation, destination: str, headers: MutableMapping[str, Any]
) -> Span:
    """Start the span of a send, in the sender's context, and add it to the headers."""
    name, attributes = operation.on(destination)
    span = tracer.start_span(name, None, SpanKind.PRODUCER, attributes)
    inject(headers, trace.set_span_in_context(span))
    return span


def end_send(span: Span, result: Sent) -> None:
    """End the span of a send."""
    if span.is_recording():
        if result.message_id is not None:
            span.set_attribute("messaging.message.id", result.message_id)
        error = result.error
        if error is not None:
            span.set_attribute("error.type", type(error).__name__)
            span.set_status(status_of(f"{type(error).__name__}: {error}"))
            span.record_exception(error)
    span.end()

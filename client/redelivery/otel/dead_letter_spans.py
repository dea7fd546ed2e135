"""Spans of dead letters.

The broker confirms a dead letter after the handler run that led to it, and on another thread.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanKind

from redelivery.otel.attributes import dead_letter_attributes
from redelivery.otel.process_span import NOWHERE, links_to
from redelivery.otel.propagation import extracted

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext, Tracer

    from redelivery.events import DeadLettered
    from redelivery.otel.attributes import Operation

__all__ = ["Ended", "Remembered", "settle_span"]

# As many as a consumer may have unsettled by default. Dead letters of older ones are linked to the producer only.
_KEPT = 1000


class Ended(NamedTuple):
    """Process span that has ended."""

    span: SpanContext
    at: int
    """Nanoseconds since 1970."""


class Remembered:
    """Process spans by object, for events that follow: at most 1000, the newest. Callable from any thread."""

    def __init__(self) -> None:
        """Start empty."""
        self._lock = threading.Lock()
        # The object itself is kept: no other object can have its id meanwhile.
        self._known: dict[int, tuple[object, Ended | None]] = {}

    def put(self, key: object, ended: Ended | None) -> None:
        """Keep the span of an object."""
        with self._lock:
            self._known[id(key)] = key, ended
            if len(self._known) > _KEPT:
                del self._known[next(iter(self._known))]

    def look(self, key: object) -> Ended | None:
        """Return the span of an object, and keep it."""
        with self._lock:
            found = self._known.get(id(key))
        return None if found is None else found[1]

    def take(self, key: object) -> tuple[bool, Ended | None]:
        """Return True and the span if an object is kept, and forget it."""
        if not self._known:
            return False, None
        with self._lock:
            found = self._known.pop(id(key), None)
        return (False, None) if found is None else (True, found[1])


def settle_span(tracer: Tracer, operation: Operation, event: DeadLettered, ended: Ended | None) -> None:
    """Make the span of a dead letter, from the end of its handler run to its confirmation.

    It is a child of that run's span and linked to it, and to the producer's span. An expired message had no
    run.
    """
    name, attributes = operation.on(event.message_destination)
    producer = trace.get_current_span(extracted(event.delivery.headers)).get_span_context()
    parent, links, began = NOWHERE, links_to(producer), time.time_ns()
    if ended is not None:
        parent = trace.set_span_in_context(NonRecordingSpan(ended.span), NOWHERE)
        links, began = links_to(ended.span, producer), ended.at
    span = tracer.start_span(
        name, parent, SpanKind.CLIENT, attributes | dead_letter_attributes(event), links, began
    )
    span.end()

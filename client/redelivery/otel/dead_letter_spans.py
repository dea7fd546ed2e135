"""Spans of dead letters: the broker confirms one after the run that has led to it, and on another thread."""

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

# As many as a consumer may have unsettled by default; of others the dead letters are linked to the producer alone.
_KEPT = 1000


class Ended(NamedTuple):
    """A process span that has ended."""

    span: SpanContext
    at: int
    """Nanoseconds since 1970."""


class Remembered:
    """What is known of objects for which something is still to come: at most 1000, the newest. From any thread."""

    def __init__(self) -> None:
        """Nothing is known."""
        self._lock = threading.Lock()
        # With the object itself, so that no other one can have its number.
        self._known: dict[int, tuple[object, Ended | None]] = {}

    def put(self, key: object, ended: Ended | None) -> None:
        """Keep what is known of an object."""
        with self._lock:
            self._known[id(key)] = key, ended
            if len(self._known) > _KEPT:
                del self._known[next(iter(self._known))]

    def look(self, key: object) -> Ended | None:
        """Return what is known of an object, and keep it."""
        with self._lock:
            found = self._known.get(id(key))
        return None if found is None else found[1]

    def take(self, key: object) -> tuple[bool, Ended | None]:
        """Return whether an object is known, and with what; forget it."""
        if not self._known:
            return False, None
        with self._lock:
            found = self._known.pop(id(key), None)
        return (False, None) if found is None else (True, found[1])


def settle_span(tracer: Tracer, operation: Operation, event: DeadLettered, ended: Ended | None) -> None:
    """Make the span of a dead letter, from the end of its run to its confirmation.

    It is a child of that run's span and linked to it, and to the producer's. A message that has expired had no run.
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

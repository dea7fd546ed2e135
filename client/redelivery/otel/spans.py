"""Spans of sends, runs of handlers and dead letters, and the trace context in the headers of messages."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from contextvars import Token
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from opentelemetry import context, propagate, trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Getter, Setter
from opentelemetry.trace import Link, NonRecordingSpan, SpanKind, Status, StatusCode

from redelivery.otel.attributes import dead_letter_attributes, has_failed, result_attributes, template_of

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

    from opentelemetry.trace import Span, SpanContext, Tracer

    from redelivery.events import DeadLettered, Finished, Sent
    from redelivery.message import Message
    from redelivery.otel.attributes import Operation

__all__ = ["Ended", "ProcessSpan", "Remembered", "end_send", "extracted", "settle_span", "started_send"]


# ---- Propagation -----------------------------------------------------------------------------------------
# Trace context in the headers of a message.
#
# It uses the propagator that the application has set, or the default one. The name of a JMS property has no
# `-`. OpenTelemetry's Java agent writes `__dash__` for it, and this module does the same. `traceparent`,
# `tracestate` and `baggage` have no `-`.

_BAGGAGE = "baggage"


class _Headers(Getter["Mapping[str, Any]"]):
    """Reader of a propagator's fields in the headers of a message."""

    def get(self, carrier: Mapping[str, Any], key: str) -> list[str] | None:
        """Return the value of a header if it is text."""
        value = carrier.get(key)
        if value is None and "-" in key:
            value = carrier.get(_property(key))
        # A producer may have set a number, which is ignored.
        return [value] if isinstance(value, str) else None

    def keys(self, carrier: Mapping[str, Any]) -> list[str]:
        """Return the names of the headers."""
        return [*carrier]


class _Fields(Setter[dict[str, str]]):
    """Collector of the fields that a propagator sets."""

    def set(self, carrier: dict[str, str], key: str, value: str) -> None:
        """Keep one field."""
        carrier[key] = value


_HEADERS, _FIELDS = _Headers(), _Fields()


def extracted(headers: Mapping[str, Any]) -> Context:
    """Return the context of a message: its producer's span, and its baggage.

    The current context has no part in it: handling a message does not belong to the operation that started
    the consumer.
    """
    return propagate.get_global_textmap().extract(headers, Context(), getter=_HEADERS)


def inject(headers: MutableMapping[str, Any], context: Context) -> None:
    """Add a context to the headers of a message.

    A trace, or baggage, that the application has given itself is kept.
    """
    textmap = propagate.get_global_textmap()
    found: dict[str, str] = {}
    textmap.inject(found, context, _FIELDS)
    given = any(_given(name, headers) for name in textmap.fields if name != _BAGGAGE)
    for name, value in found.items():
        if not (_given(name, headers) if name == _BAGGAGE else given):
            headers[_property(name)] = value


def _given(name: str, headers: Mapping[str, Any]) -> bool:
    return name in headers or _property(name) in headers


def _property(name: str) -> str:
    return name.replace("-", "__dash__")


# ---- Process span ----------------------------------------------------------------------------------------
# Span of one run of a handler. It is current while the handler runs.

NOWHERE = Context()
"""Context in which nothing is current. A span that begins in it is the root of a trace."""


class ProcessSpan:
    """One span, from the start of its handler until the result is known."""

    __slots__ = ("_current", "_span")

    def __init__(self, tracer: Tracer, operation: Operation, message: Message, *, links_only: bool) -> None:
        """Start it, on the thread or in the task of the handler.

        `links_only`: True: it is the root of a trace, and linked to the producer's span. False: it is a child
        of that span.
        """
        brought = extracted(message.headers)
        name, attributes = operation.on(message.destination)
        parent: Context = brought
        links: list[Link] = []
        if links_only:
            parent, links = NOWHERE, links_to(trace.get_current_span(brought).get_span_context())
        self._span: Span = tracer.start_span(name, parent, SpanKind.CONSUMER, attributes, links)
        # With the baggage of the message.
        self._current = context.attach(trace.set_span_in_context(self._span, brought))

    @property
    def span_context(self) -> SpanContext:
        """Context that other spans link to."""
        return self._span.get_span_context()

    def end(self, result: Finished) -> None:
        """End the span, and restore the context that was current before."""
        try:
            if self._span.is_recording():
                _describe(self._span, result)
            self._span.end()
        finally:
            _detach(self._current)


def _describe(span: Span, result: Finished) -> None:
    if result.destination != result.message_destination:
        template = template_of(result.destination)
        if template is not None:
            span.set_attribute("messaging.destination.template", template)
            span.update_name(f"process {template}")
    span.set_attributes(result_attributes(result))
    error, failed = result.error, has_failed(result)
    if failed:
        span.set_status(status_of(result.cause))
    # Defer and discard are not failures, though they are raised.
    if error is not None and (failed or result.verdict not in ("defer", "discard")):
        span.record_exception(error)


def links_to(*spans: SpanContext) -> list[Link]:
    """Return links to the valid ones of these spans."""
    return [Link(each) for each in spans if each.is_valid]


def status_of(text: str | None) -> Status:
    """Return the status of a failure."""
    return Status(StatusCode.ERROR, None if text is None else text[:256])


def _detach(token: object) -> None:
    """Restore the context before this one, unless the current context is another one than at the start.

    A task ends in another context if its loop is gone; `opentelemetry.context.detach` would log that as an
    error.
    """
    if isinstance(token, Token):
        with suppress(ValueError, RuntimeError):
            found = cast("Token[object]", token)
            found.var.reset(found)
    else:
        # OTEL_PYTHON_CONTEXT has set another context implementation.
        context.detach(cast("Token[Context]", token))


# ---- Send span -------------------------------------------------------------------------------------------
# Span of one send. The headers of its message carry its context.


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


# ---- Dead letter spans -----------------------------------------------------------------------------------
# Spans of dead letters.
#
# The broker confirms a dead letter after the handler run that led to it, and on another thread.

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

"""Span of one run of a handler. It is current while the handler runs."""

from __future__ import annotations

from contextlib import suppress
from contextvars import Token
from typing import TYPE_CHECKING, cast

from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

from redelivery.otel.attributes import has_failed, result_attributes, template_of
from redelivery.otel.propagation import extracted

if TYPE_CHECKING:
    from opentelemetry.trace import Span, SpanContext, Tracer

    from redelivery.events import Finished
    from redelivery.message import Message
    from redelivery.otel.attributes import Operation

__all__ = ["NOWHERE", "ProcessSpan", "links_to", "status_of"]

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

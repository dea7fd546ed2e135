"""Current context: in handlers, for their sends, and from the headers of messages."""

from __future__ import annotations

import asyncio
import contextvars
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import baggage, context, trace
from tests.driver.twins import eventually
from tests.otel.recorded import PRODUCER, span_id

import redelivery
from redelivery.otel.spans import extracted

if TYPE_CHECKING:
    from tests.driver.twins import Twin
    from tests.otel.recorded import Recorded

    from redelivery import Message
    from redelivery.testing import MemoryBroker


def nothing(_: Message) -> None:
    """Succeed."""


def test_the_span_is_current_in_the_handler(twin: Twin, recorded: Recorded) -> None:
    """A span started by the handler is a child of its process span; nothing is current there afterwards."""
    tracer = recorded.tracers.get_tracer("application")
    seen: list[bool] = []

    def handle(_: Message) -> None:
        with tracer.start_as_current_span("inside"):
            pass

    def look(_: Message) -> None:
        seen.append(trace.get_current_span().get_span_context().is_valid)

    connection = twin.connect(observers=[recorded.telemetry()])
    twin.listen(connection, "orders", handle)
    twin.broker.send("orders", "a")
    twin.broker.send("orders", "b")
    eventually(twin, lambda: len(recorded.spans("process")) == 2)
    inside, process = recorded.spans("inside"), recorded.spans("process")
    assert [each.parent.span_id for each in inside if each.parent] == [span_id(each) for each in process]
    assert len({each.context.trace_id for each in process if each.context}) == 2
    twin.listen(connection, "others", look)
    twin.broker.send("others", "a")
    eventually(twin, lambda: seen)
    assert seen == [True]


def test_the_span_is_current_in_a_plain_handler_of_asyncio(
    redelivery_broker: MemoryBroker, recorded: Recorded
) -> None:
    """A plain handler runs in a thread with a copy of the task's context: span and baggage are there, too."""
    seen: list[Any] = []

    def handle(_: Message) -> None:
        seen.append((trace.get_current_span().get_span_context().span_id, baggage.get_baggage("tenant")))

    async def main() -> None:
        async with redelivery.connect_async(
            redelivery_broker.uri, observers=[recorded.telemetry()]
        ) as connection:
            connection.listen("orders", handle)
            token = context.attach(baggage.set_baggage("tenant", "blue & green"))
            await connection.send("orders", "a")
            context.detach(token)
            await connection.run(until_idle=0.01)
            seen.append(trace.get_current_span().get_span_context().is_valid)

    asyncio.run(main())
    [process] = recorded.spans("process")
    assert seen == [(span_id(process), "blue & green"), False]


BLUE = baggage.set_baggage("tenant", "blue", context.Context())


def send_within(twin: Twin, connection: Any, current: context.Context, **options: Any) -> None:
    """Send a message inside of a current span, as a handler of a request does."""

    def send() -> Any:
        context.attach(current)
        return connection.send("orders", "a", **options)

    async def send_on_loop() -> None:
        token = context.attach(current)
        await connection.send("orders", "a", **options)
        context.detach(token)

    if twin.asynchronous:
        twin.call(send_on_loop())
    else:
        contextvars.copy_context().run(send)


def test_a_send_belongs_to_what_is_current(twin: Twin, recorded: Recorded) -> None:
    """A send from a handler is a child of its span: the chain of messages is one trace."""
    tracer = recorded.tracers.get_tracer("application")
    connection = twin.connect(observers=[recorded.telemetry()])
    consumer = twin.call(connection.consumer("orders"))
    request = tracer.start_span("request")
    send_within(twin, connection, trace.set_span_in_context(request, BLUE))
    [send] = recorded.spans("send")
    assert send.parent is not None
    assert send.parent.span_id == request.get_span_context().span_id
    headers = twin.receive(consumer).headers
    assert headers["traceparent"].split("-")[2] == f"{span_id(send):016x}"
    assert headers["baggage"] == "tenant=blue"


@pytest.mark.parametrize(
    ("given", "traced", "baggage_kept"),
    [
        (PRODUCER, False, "tenant=blue"),
        ({"tracestate": "a=b"}, False, "tenant=blue"),
        ({"baggage": "tenant=mine"}, True, "tenant=mine"),
    ],
)
def test_what_the_application_gives_stays(
    twin: Twin, recorded: Recorded, given: dict[str, str], traced: bool, baggage_kept: str
) -> None:
    """A trace, or baggage, that the application gives is sent unchanged; without one, the library sends its own."""
    connection = twin.connect(observers=[recorded.telemetry()])
    consumer = twin.call(connection.consumer("orders"))
    send_within(twin, connection, BLUE, headers=given)
    headers = dict(twin.receive(consumer).headers)
    [send] = recorded.spans("send")
    own = f"-{span_id(send):016x}-" in headers.get("traceparent", "")
    assert (own, headers["baggage"]) == (traced, baggage_kept)
    assert {name: headers[name] for name in given} == given


def test_a_span_ended_in_another_context_is_quiet(
    twin: Twin, recorded: Recorded, caplog: pytest.LogCaptureFixture
) -> None:
    """A task whose loop is gone ends in another context: nothing is logged, the span ends, and that context stays."""
    telemetry = recorded.telemetry()
    connection = twin.connect(observers=[telemetry])
    consumer = twin.call(connection.consumer("orders"))
    twin.broker.send("orders", "a")
    message = twin.receive(consumer)
    results: list[Any] = []
    other = twin.connect(
        observers=[lambda event: results.append(event) if event.name == "finished" else None]
    )
    twin.listen(other, "others", nothing)
    twin.broker.send("others", "a")
    eventually(twin, lambda: results)
    token = contextvars.Context().run(telemetry.started, message)
    contextvars.Context().run(telemetry.finished, token, results[0])
    assert len(recorded.spans("process")) == 1
    assert caplog.records == []


def test_what_is_current_where_a_consumer_runs_is_no_part_of_its_messages(recorded: Recorded) -> None:
    """A message without a trace gets none from the context in which its consumer was started."""
    request = recorded.tracers.get_tracer("application").start_span("request")
    token = context.attach(trace.set_span_in_context(request, BLUE))
    try:
        brought = extracted({})
    finally:
        context.detach(token)
    assert not trace.get_current_span(brought).get_span_context().is_valid
    assert baggage.get_baggage("tenant", brought) is None

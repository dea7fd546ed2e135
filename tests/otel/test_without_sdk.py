"""Without an SDK, or without OpenTelemetry: nothing is done, and the missing package is named."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

from opentelemetry import metrics, propagate, trace
from opentelemetry.propagators.textmap import (
    Getter,
    Setter,
    TextMapPropagator,
    default_getter,
    default_setter,
)
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import NoOpTracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from tests.driver.twins import eventually
from tests.otel.recorded import attributes, linked, span_id

import redelivery.otel.telemetry
from redelivery.otel import Telemetry

if TYPE_CHECKING:
    import pytest
    from opentelemetry.context import Context
    from tests.driver.twins import Twin
    from tests.otel.recorded import Recorded

    from redelivery import Message

W3C = TraceContextTextMapPropagator()
BLOCKED = """
import sys
sys.modules["opentelemetry"] = None
try:
    import redelivery.otel
except ImportError as error:
    print(error)
"""


class Dashed(TextMapPropagator):
    """Propagator like the W3C's, with a dash in the header's name."""

    @property
    def fields(self) -> set[str]:
        return {"uber-trace-id"}

    def inject(
        self, carrier: Any, context: Context | None = None, setter: Setter[Any] = default_setter
    ) -> None:
        inner: dict[str, str] = {}
        W3C.inject(inner, context)
        setter.set(carrier, "uber-trace-id", inner["traceparent"])

    def extract(
        self, carrier: Any, context: Context | None = None, getter: Getter[Any] = default_getter
    ) -> Context:
        found = getter.get(carrier, "uber-trace-id")
        return W3C.extract({"traceparent": found[0]} if found else {}, context)


def nothing(_: Message) -> None:
    """Succeed."""


def test_the_missing_package_is_named() -> None:
    """The error for a missing package says what to install."""
    command = [sys.executable, "-c", BLOCKED]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    assert printed == (
        "redelivery.otel needs opentelemetry-api, which is not installed here: pip install 'redelivery[otel]'\n"
    )


def test_without_an_sdk_nothing_is_done(
    twin: Twin, monkeypatch: pytest.MonkeyPatch, recorded: Recorded
) -> None:
    """Without an SDK no header is added and no span is made; an SDK that is set up later is found."""
    monkeypatch.setattr(redelivery.otel.telemetry, "LOOK_AGAIN", 0.0)
    telemetry = Telemetry()
    connection = twin.connect(observers=[telemetry])
    consumer = twin.call(connection.consumer("orders"))
    twin.call(connection.send("orders", "a"))
    message = twin.receive(consumer)
    assert set(message.headers) == {"redeliveryId"}
    assert telemetry.started(message) is None
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: recorded.tracers)
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: recorded.meters)
    twin.call(connection.send("orders", "b"))
    assert "traceparent" in twin.receive(consumer).headers
    assert recorded.counts("messaging.client.sent.messages", "messaging.destination.name") == {"orders": 1}


def test_metrics_alone(twin: Twin, recorded: Recorded) -> None:
    """A provider that records nothing makes no spans; metrics are recorded."""
    connection = twin.connect(observers=[Telemetry(NoOpTracerProvider(), recorded.meters)])
    twin.listen(connection, "orders", nothing)
    twin.call(connection.send("orders", "a"))
    eventually(twin, lambda: recorded.points("messaging.process.duration"))
    assert recorded.spans() == []


def test_an_sdk_that_is_switched_off_is_none(
    twin: Twin, recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`OTEL_SDK_DISABLED` leaves the headers of a message unchanged."""
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    connection = twin.connect(observers=[Telemetry(TracerProvider(), recorded.meters)])
    consumer = twin.call(connection.consumer("orders"))
    twin.call(connection.send("orders", "a"))
    assert "traceparent" not in twin.receive(consumer).headers


def test_what_is_not_sampled_goes_along(twin: Twin, recorded: Recorded) -> None:
    """A sampler that takes nothing records nothing, and the headers pass its decision on."""
    tracers = TracerProvider(sampler=ALWAYS_OFF)
    connection = twin.connect(observers=[Telemetry(tracers, recorded.meters)])
    consumer = twin.call(connection.consumer("orders"))
    twin.call(connection.send("orders", "a"))
    assert twin.receive(consumer).headers["traceparent"].split("-")[3] in ("00", "02")
    tracers.shutdown()


def test_a_producers_number_is_no_trace(twin: Twin, recorded: Recorded) -> None:
    """Headers with the right name and any value leave the delivery unchanged."""
    connection = twin.connect(observers=[recorded.telemetry()])
    twin.listen(connection, "orders", nothing)
    for value in (7, "00-nonsense", "", True):
        twin.broker.send("orders", "a", headers={"traceparent": value, "baggage": value})
    eventually(twin, lambda: len(recorded.spans("process")) == 4)
    assert [each.links for each in recorded.spans("process")] == [()] * 4
    assert {attributes(each)["redelivery.outcome"] for each in recorded.spans("process")} == {"accepted"}


def test_a_dash_is_written_as_java_writes_it(
    twin: Twin, recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dash in a header's name is written as by OpenTelemetry's Java agent: `uber__dash__trace__dash__id`.

    The name of a JMS property has no dash.
    """
    monkeypatch.setattr(propagate, "get_global_textmap", Dashed)
    connection = twin.connect(observers=[recorded.telemetry()])
    twin.call(connection.send("orders", "a"))
    [sent] = twin.broker.messages("orders")
    assert "uber__dash__trace__dash__id" in sent.headers
    twin.listen(connection, "orders", nothing)
    [send] = recorded.spans("send")
    eventually(twin, lambda: recorded.spans("process"))
    [process] = recorded.spans("process")
    assert linked(process) == [span_id(send)]

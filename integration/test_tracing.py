"""Traces through real brokers: other clients' producers, failure, redelivery, dead letter, redrive, success.

The first span is not the library's: a program of proton, or a Java client, sets `traceparent` as a property.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import baggage
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import NoOpTracerProvider

import redelivery
from integration.eventually import eventually
from integration.peers import PAIRS
from integration.raw_amqp import RawAmqp
from integration.work import POLICY, Running
from redelivery.otel import Telemetry

if TYPE_CHECKING:
    from collections.abc import Callable

    from integration.brokers import Broker
    from integration.conftest import Session
    from integration.java_client import JavaClient

pytestmark = pytest.mark.ci("traces on each pair")

POLICIES = redelivery.RedeliveryPolicyMap(
    default=POLICY(maximum_redeliveries=1, initial_redelivery_delay=0.05)
)
SPAN = "b7ad6b7169203331"
TRACED = {
    "traceparent": f"00-0af7651916cd43dd8448eb211c80319c-{SPAN}-01",
    "tracestate": "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE",
    "baggage": "tenant=blue%20%26%20green,user=7",
}
# Where an AMQP producer's message arrives whole (docs/measured/rabbitmq-stomp.md).
WHOLE = [pair for pair in PAIRS if pair != ("rabbitmq", "stomp")]
SYSTEMS = {"activemq": "activemq", "artemis": "activemq", "brokerj": "qpid", "rabbitmq": "rabbitmq"}


class Traced:
    """A consumer that fails until its service is up, and its spans."""

    def __init__(self) -> None:
        """Begin with failures."""
        self.exporter = InMemorySpanExporter()
        tracers = TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.telemetry = Telemetry(tracers)
        self.down = True
        self.ids: set[str] = set()
        self.headers: list[dict[str, Any]] = []
        self.baggage: list[dict[str, object]] = []

    def __call__(self, message: redelivery.Message) -> None:
        """Handle one delivery."""
        self.ids.add(message.message_id or "")
        self.headers.append({name: message.headers.get(name) for name in TRACED})
        self.baggage.append(dict(baggage.get_all()))
        if self.down:
            raise ValueError("no stock")

    def spans(self, operation: str) -> list[ReadableSpan]:
        """Return the spans of an operation, in the order of their ends."""
        return [each for each in self.exporter.get_finished_spans() if each.name.startswith(f"{operation} ")]


def through_poison_and_redrive(
    broker: Broker, protocol: str, queue: str, send: Callable[[], object]
) -> Traced:
    """Fail, dead-letter, redrive and handle one message; return the consumer with its spans."""
    uri, traced = broker.uri(protocol=protocol), Traced()
    with redelivery.connect(uri, policies=POLICIES, observers=[traced.telemetry]) as connection:
        connection.listen(queue, traced)
        send()
        with Running(connection):
            eventually(lambda: traced.spans("settle"), message="the dead letter is confirmed")
            traced.down = False
            with redelivery.dead_letters(uri, broker.dead_letter_queue) as tools:
                redriven = tools.redrive(to=queue, id=traced.ids)
            assert sum(redriven.destinations.values()) == 1
            eventually(lambda: len(traced.spans("process")) == 3, message="the redriven message is handled")
    return traced


def links(span: ReadableSpan) -> list[str]:
    """Return the ids of the spans that a span is linked to."""
    return [f"{each.context.span_id:016x}" for each in span.links]


def own(span: ReadableSpan) -> str:
    """Return the id of a span."""
    assert span.context is not None
    return f"{span.context.span_id:016x}"


def as_designed(traced: Traced, broker: Broker, queue: str, producer: str = SPAN) -> None:
    """Check three deliveries linked to one producer, and a dead letter linked to the second and to the producer."""
    runs, (settled,) = traced.spans("process"), traced.spans("settle")
    assert [links(each) for each in runs] == [[producer]] * 3
    assert links(settled) == [own(runs[1]), producer]
    assert settled.parent is not None
    assert f"{settled.parent.span_id:016x}" == own(runs[1])
    assert [each.parent for each in runs] == [None] * 3
    found = [dict(each.attributes or {}) for each in runs]
    assert [each["redelivery.outcome"] for each in found] == ["redelivered", "poisoned", "accepted"]
    assert [each.get("error.type") for each in found] == ["ValueError", "ValueError", None]
    assert {each["messaging.destination.name"] for each in found} == {queue}
    assert {each["messaging.system"] for each in found} == {SYSTEMS[broker.name]}
    assert all(each["server.address"] and each["server.port"] for each in found)
    # A copy over AMQP has no id, unless this library sent the message.
    assert all(each["messaging.message.id"] for each in found[:2])


@pytest.fixture(params=PAIRS, ids="-".join)
def pair(request: pytest.FixtureRequest, session: Session) -> tuple[Broker, str]:
    """Return a running broker, and the protocol of the consumer."""
    name, protocol = request.param
    return session.broker(name), protocol


@pytest.mark.own_broker("reads its dead-letter queue")
@pytest.mark.parametrize("pair", WHOLE, ids="-".join, indirect=True)
def test_a_producer_of_proton(pair: tuple[Broker, str], unique_queue: str) -> None:
    """`traceparent`, `tracestate` and `baggage` of a proton producer are properties, and stay through all steps."""
    broker, protocol = pair
    # Classic cannot acknowledge a message over STOMP to which an AMQP producer has given an id.
    named = {} if (broker.name, protocol) == ("activemq", "stomp") else {"id": unique_queue}

    def send() -> None:
        with RawAmqp(broker) as amqp:
            amqp.send(unique_queue, b"order", properties=TRACED, **named)

    traced = through_poison_and_redrive(broker, protocol, unique_queue, send)
    as_designed(traced, broker, unique_queue)
    assert traced.headers == [TRACED] * 3
    assert traced.baggage == [{"tenant": "blue & green", "user": "7"}] * 3


@pytest.mark.own_broker("reads its dead-letter queue")
@pytest.mark.parametrize("kind", ["core", "openwire", "qpid"])
@pytest.mark.parametrize("protocol", ["stomp", "amqp"])
def test_a_java_producer(
    artemis: Broker,
    java_client: Callable[[Broker, str | None], JavaClient],
    unique_queue: str,
    kind: str,
    protocol: str,
) -> None:
    """The properties of a JMS client with the same names give the same spans."""
    java = java_client(artemis, kind)
    traced = through_poison_and_redrive(
        artemis, protocol, unique_queue, lambda: java.send(unique_queue, b"order", properties=TRACED)
    )
    as_designed(traced, artemis, unique_queue)
    assert traced.headers == [TRACED] * 3
    assert traced.baggage == [{"tenant": "blue & green", "user": "7"}] * 3


@pytest.mark.own_broker("reads its dead-letter queue")
def test_our_own_producer(pair: tuple[Broker, str], unique_queue: str) -> None:
    """The span of this library's `send` arrives over each protocol of each broker, with its baggage and its id."""
    broker, protocol = pair
    producer, uri = Traced(), broker.uri(protocol=protocol)

    def send() -> None:
        with redelivery.connect(uri, observers=[producer.telemetry]) as connection:
            connection.send(unique_queue, "order", headers={"baggage": TRACED["baggage"]})

    consumer = through_poison_and_redrive(broker, protocol, unique_queue, send)
    [sent] = producer.spans("send")
    as_designed(consumer, broker, unique_queue, own(sent))
    assert consumer.baggage == [{"tenant": "blue & green", "user": "7"}] * 3
    every = [sent, *consumer.spans("process"), *consumer.spans("settle")]
    assert len({(each.attributes or {})["messaging.message.id"] for each in every}) == 1


def test_a_name_with_a_dash_arrives(pair: tuple[Broker, str], unique_queue: str) -> None:
    """Names of other propagators arrive, unchanged and as OpenTelemetry's agent for Java writes them."""
    broker, protocol = pair
    names = {"uber-trace-id": "a:b:c:1", "uber__dash__trace__dash__id": "a:b:c:1", "X-B3-TraceId": "80f1"}
    with redelivery.connect(
        broker.uri(protocol=protocol), observers=[Telemetry(NoOpTracerProvider())]
    ) as connection:
        consumer = connection.consumer(unique_queue)
        connection.send(unique_queue, "order", headers=names)
        message = consumer.receive(timeout=30)
        assert message is not None
        with message:
            assert {name: message.headers.get(name) for name in names} == names

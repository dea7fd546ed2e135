"""ActiveMQ Classic: one message for several consumers, all of which fail: each failure leaves its dead letter.

Classic's own poison acknowledgement keeps one dead letter for each message id, and none for a topic's plain subscriber
(docs/measured/activemq-fan-out.md).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import redelivery
from integration.eventually import eventually
from integration.java_client import JavaClient

if TYPE_CHECKING:
    from collections.abc import Iterator

    from integration.brokers import Broker
    from integration.conftest import Session
    from integration.java_client import JmsMessage

pytestmark = [
    pytest.mark.ci("fan-outs of ActiveMQ Classic"),
    pytest.mark.own_broker("reads its dead-letter queue"),
]

NO_RETRY = redelivery.RedeliveryPolicyMap(default=redelivery.RedeliveryPolicy(maximum_redeliveries=0))
TOPICS = ("topic, one plain subscriber", "topic, two plain subscribers", "topic, two durable subscribers")
FED = (
    "virtual topic",
    "unmarked virtual topic",
    "composite address",
    "composite queue",
    "composite queue kept",
)
# What Classic drops of them by its own acknowledgement.
LOST = {"virtual topic": 1, "unmarked virtual topic": 1, "composite address": 1, "composite queue": 1,
        "composite queue kept": 2}  # fmt: skip
BODY = "Grüße".encode()
VALUES: dict[str, Any] = {
    "text": BODY,
    "bytes": BODY,
    "map": {"text": "Grüße", "number": 42, "flag": True},
    "object": "Grüße",
    "stream": ["Grüße", 42, True],
}
EMPTY = ("text", "null-text", "bytes", "empty")


class Way(NamedTuple):
    """Where a message is sent, and what is consumed."""

    to: str
    consumed: tuple[str, ...]
    durable: bool = False


def way(name: str, x: str) -> Way:
    """Return the destinations of a way by its name."""
    if name.startswith("topic"):
        two = "two" in name
        return Way(f"topic://{x}", (f"topic://{x}",) * (1 + two), durable="durable" in name)
    if "virtual topic" in name:
        topic = f"{'Unmarked' if 'unmarked' in name else 'VirtualTopic'}.{x}"
        return Way(f"topic://{topic}", tuple(f"queue://Consumer.{each}.{topic}" for each in "AB"))
    if name == "composite address":
        return Way(f"queue://{x}.a,{x}.b", (f"queue://{x}.a", f"queue://{x}.b"))
    stem = "queue://fan.kept" if name.endswith("kept") else "queue://fan.both"
    return Way(stem, (*((stem,) if name.endswith("kept") else ()), f"{stem}.a", f"{stem}.b"))


def fail_everywhere(broker: Broker, java: JavaClient, protocol: str, route: str, name: str, x: str) -> int:
    """Fail with one message in each consumer of a way; return the number of failures, all confirmed."""
    to, consumed, durable = way(name, x)
    links: list[tuple[redelivery.Connection, redelivery.Consumer]] = []
    try:
        for number, each in enumerate(consumed):
            uri = broker.uri(protocol=protocol, redelivery__deadLetter=route, jms__clientID=f"{x}.{number}")
            connection = redelivery.connect(uri, policies=NO_RETRY)
            connection.__enter__()
            subscription = "name" if durable else None
            links.append((connection, connection.consumer(each, subscription=subscription)))
        kind, _, target = to.partition("://")
        java.send(
            target if kind == "queue" else None,
            b"bad",
            topic=target if kind == "topic" else None,
            properties={"run": x},
        )
        for connection, consumer in links:
            message = consumer.receive(timeout=60)
            assert message is not None
            message.fail("no")
            eventually(lambda: connection.report().poisoned == 1, 60)  # noqa: B023 - called at once
    finally:
        for connection, _ in links:
            connection.close()
    return len(links)


def letters(java: JavaClient, x: str, expected: int) -> list[JmsMessage]:
    """Take the dead letters of one test."""
    return java.drain("ActiveMQ.DLQ", selector=f"run = '{x}'", expected=expected)


@pytest.mark.parametrize("protocol", ["amqp", "stomp"])
@pytest.mark.parametrize("route", ["auto", "forward"])
@pytest.mark.parametrize("name", [*TOPICS, *FED])
def test_each_failure_leaves_a_letter(
    activemq: Broker, java_client: Any, unique_queue: str, name: str, route: str, protocol: str
) -> None:
    """Each consumer that fails leaves a dead letter of its own, with its cause."""
    java = java_client(activemq, None)
    failed = fail_everywhere(activemq, java, protocol, route, name, unique_queue)
    found = letters(java, unique_queue, failed)
    assert [message.properties["redeliveryCause"] for message in found] == ["no"] * failed
    origins = sorted(message.properties["redeliveryOriginalDestination"] for message in found)
    assert origins == sorted(way(name, unique_queue).consumed)


@pytest.mark.parametrize("protocol", ["amqp", "stomp"])
@pytest.mark.parametrize("name", [*TOPICS, *FED])
def test_classics_own_acknowledgement_is_not_used_where_it_is_seen_to_lose(
    activemq: Broker, java_client: Any, unique_queue: str, caplog: Any, name: str, protocol: str
) -> None:
    """With `deadLetter=ack` each failure leaves a letter, but for the queues of a fan-out over AMQP: a warning."""
    java = java_client(activemq, None)
    with caplog.at_level(logging.WARNING, logger="redelivery"):
        failed = fail_everywhere(activemq, java, protocol, "ack", name, unique_queue)
    lost = LOST.get(name, 0) if protocol == "amqp" else 0
    assert len(letters(java, unique_queue, failed - lost)) == failed - lost
    warned = [each for each in caplog.messages if "one dead letter for each message id" in each]
    assert len(warned) == (failed if protocol == "amqp" and name in FED else 0)


@pytest.fixture(
    params=[False, pytest.param(True, marks=pytest.mark.full("compressed by OpenWire's client only"))],
    ids=["plain", "compressed"],
)
def java(request: pytest.FixtureRequest, session: Session, activemq: Broker) -> Iterator[Any]:
    """Return a Java client that compresses bodies, or not."""
    if not request.param:
        yield session.java(activemq)
        return
    with JavaClient(activemq, options="?jms.useCompression=true") as client:
        yield client


def poison(broker: Broker, protocol: str, queue: str) -> redelivery.Report:
    """Fail with the message of a queue; return the report when it has left, or was set aside."""
    with redelivery.connect(broker.uri(protocol=protocol), policies=NO_RETRY) as connection:
        with connection.consumer(queue) as consumer:
            message = consumer.receive(timeout=60)
            assert message is not None
            message.fail("no")
            eventually(lambda: connection.report().poisoned + connection.report().set_aside == 1, 60)
        return connection.report()


@pytest.mark.parametrize("protocol", ["amqp", "stomp"])
@pytest.mark.parametrize("persistent", [True, False], ids=["persistent", "non_persistent"])
@pytest.mark.parametrize("kind", [*VALUES, *(f"no {kind}" for kind in EMPTY)])
def test_a_typed_message_is_whole_in_the_dead_letter_queue(
    activemq: Broker, java: JavaClient, unique_queue: str, kind: str, protocol: str, *, persistent: bool
) -> None:
    """A Java message that fails is whole for a Java reader of the dead letters; else it is whole on its queue.

    On its queue stays what is not persistent, over STOMP, where the body does not arrive.
    """
    sent = kind.removeprefix("no ")
    body = BODY if sent == kind else b""
    java.send(
        unique_queue,
        body,
        kind=sent,
        persistent=persistent,
        properties={"run": unique_queue, "n": ("short", 3)},
    )
    report = poison(activemq, protocol, unique_queue)
    copied = protocol == "amqp" or kind in ("text", "bytes")
    if copied or persistent:
        (found,) = letters(java, unique_queue, 1)
        assert report.poisoned == 1
        assert java.count(unique_queue) == 0
        assert ("redeliveryCause" in found.properties) is copied
    else:
        (found,) = java.drain(unique_queue, expected=1)
        assert report.set_aside == 1
    # Over AMQP a Message without a body looks like an empty BytesMessage, and so does its copy.
    sent = "bytes" if (sent, protocol) == ("empty", "amqp") else sent
    check(found, sent, body, texts=protocol == "stomp" and copied)


def check(found: JmsMessage, kind: str, body: bytes, *, texts: bool) -> None:
    """Check type and content of a message."""
    assert found.kind == kind.removeprefix("null-")
    # A copy over STOMP has texts only.
    number = ("string", "3") if texts else ("short", 3)
    assert (found.property_types["n"], found.properties["n"]) == number
    if not body:
        assert not found.body
    elif kind == "map":
        assert VALUES["map"].items() <= found.value.items()
    else:
        assert (found.body if found.body is not None else found.value) == VALUES[kind]


@pytest.mark.parametrize("to", ["VirtualTopic.", "topic"])
def test_a_map_of_a_fan_out_is_set_aside(
    activemq: Broker, java_client: Any, unique_queue: str, to: str
) -> None:
    """Over STOMP a persistent Map that came through a virtual topic is set aside; that of a queue is not."""
    java: JavaClient = java_client(activemq, None)
    topic = f"VirtualTopic.{unique_queue}"
    consumed = f"Consumer.A.{topic}" if to == "VirtualTopic." else f"topic://{topic}"
    with redelivery.connect(activemq.uri(protocol="stomp"), policies=NO_RETRY) as connection:
        consumer = connection.consumer(consumed)
        java.send(None, BODY, kind="map", topic=topic, properties={"run": unique_queue})
        message = consumer.receive(timeout=60)
        assert message is not None
        message.fail("no")
        eventually(lambda: connection.report().set_aside == 1, 60)
    assert letters(java, unique_queue, 0) == []

"""Dead-letter strategies on real brokers; another client reads the dead-letter queues."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any

import pytest

import redelivery
from integration.eventually import eventually, gathered
from integration.peers import PAIRS
from integration.raw_amqp import RawAmqp
from integration.work import Running

if TYPE_CHECKING:
    from collections.abc import Callable

    from integration.brokers import Broker
    from integration.conftest import Client
    from integration.java_client import JavaClient, JmsMessage

pytestmark = [
    pytest.mark.ci("each strategy on each pair"),
    pytest.mark.own_broker("reads its dead-letter queue"),
]

ONCE: dict[str, Any] = {"jms__redeliveryPolicy__maximumRedeliveries": 0}
INDIVIDUAL: dict[str, Any] = {**ONCE, "redelivery__deadLetterStrategy": "individual"}
DISCARDING: dict[str, Any] = {**ONCE, "redelivery__deadLetterStrategy": "discarding"}
QUEUE_PREFIX = {"activemq": "ActiveMQ.DLQ.Queue."}
TOPIC_PREFIX = {"activemq": "ActiveMQ.DLQ.Topic."}
LETTERS = "DLQ."  # prefix of all the others
WILD = [pair for pair in PAIRS if pair[0] in ("activemq", "artemis")]
JMS_PAIRS = [pair for pair in PAIRS if pair != ("rabbitmq", "stomp")]
on_each_pair = pytest.mark.parametrize("peer", PAIRS, ids="-".join, indirect=True)


def fail(message: redelivery.Message) -> None:
    """Fail always."""
    raise ValueError(f"no {message.text}")


def settled(connection: redelivery.Connection, poisoned: int, discarded: int = 0) -> None:
    """Wait until these numbers of messages have been dead-lettered and discarded."""

    def done() -> bool:
        report = connection.report()
        return (report.poisoned, report.discarded) == (poisoned, discarded)

    eventually(done, 60, message=f"{poisoned} poisoned and {discarded} discarded")


def own(client: Client, queue: str, run: str, expected: int = 0) -> list[JmsMessage]:
    """Receive the messages of this run from a queue, of which `expected` are waited for.

    RabbitMQ ignores a selector over AMQP 1.0, and sends all.
    """

    def take() -> list[JmsMessage]:
        drained = client.drain(queue, selector=f"run = '{run}'")
        return [message for message in drained if message.properties.get("run") == run]

    return gathered(take, expected)


@on_each_pair
def test_each_queue_has_its_own(
    peer: tuple[Broker, str], client_for: Callable[[Broker, str], Client], unique_queue: str
) -> None:
    """A poison message, persistent or not, is in the queue that is named after its own, with its cause."""
    broker, protocol = peer
    client, run = client_for(broker, protocol), uuid.uuid4().hex
    queues = [f"{unique_queue}.{name}" for name in ("a", "b")]
    with redelivery.connect(broker.uri(protocol=protocol, **INDIVIDUAL)) as connection:
        for queue in queues:
            connection.listen(queue, fail)
        with Running(connection):
            for queue in queues:
                for persistent in (True, False):
                    client.send(queue, b"body", properties={"run": run}, persistent=persistent)
            settled(connection, 4)
    prefix = QUEUE_PREFIX.get(broker.name, LETTERS)
    for queue in queues:
        found = own(client, prefix + queue, run, 2)
        assert [message.body for message in found] == [b"body"] * 2
        assert {message.properties["redeliveryCause"] for message in found} == {"ValueError: no body"}
        assert {message.properties["redeliveryOriginalDestination"] for message in found} == {
            f"queue://{queue}"
        }
        assert all(message.persistent for message in found)
        if broker.name == "artemis":
            assert {message.properties["_AMQ_ORIG_ADDRESS"] for message in found} == {queue}
        assert own(client, queue, run) == []
    assert own(client, broker.dead_letter_queue, run) == []


@pytest.mark.parametrize("peer", WILD, ids="-".join, indirect=True)
def test_behind_a_wildcard_and_from_a_topic(
    peer: tuple[Broker, str], client_for: Callable[[Broker, str], Client], unique_queue: str
) -> None:
    """The message's own queue or topic names the dead-letter queue, with the user's prefix and suffix."""
    broker, protocol = peer
    client, run = client_for(broker, protocol), uuid.uuid4().hex
    names: dict[str, Any] = {
        "redelivery__queuePrefix": "DEAD.", "redelivery__queueSuffix": ".q",
        "redelivery__topicPrefix": "LATE.", "redelivery__topicSuffix": ".t",
    }  # fmt: skip
    queues = [f"{unique_queue}.w.{name}" for name in ("a", "b")]
    if broker.name == "artemis":
        names["redelivery__wildcards"] = "address"
    with redelivery.connect(broker.uri(protocol=protocol, **INDIVIDUAL, **names)) as connection:
        connection.listen(f"{unique_queue}.w.*", fail)
        connection.listen(f"topic://{unique_queue}.t", fail)
        connection.start()  # for a wildcard on Artemis, and for topics: earlier messages do not arrive
        with Running(connection):
            for queue in queues:
                client.send(queue, b"from a queue", properties={"run": run})
            client.send(None, b"from a topic", topic=f"{unique_queue}.t", properties={"run": run})
            settled(connection, 3)
    for queue in queues:
        assert [message.body for message in own(client, f"DEAD.{queue}.q", run, 1)] == [b"from a queue"]
    assert [message.body for message in own(client, f"LATE.{unique_queue}.t.t", run, 1)] == [b"from a topic"]


@pytest.mark.parametrize("peer", WILD, ids="-".join, indirect=True)
def test_each_durable_subscription_has_its_own(
    peer: tuple[Broker, str], client_for: Callable[[Broker, str], Client], unique_queue: str
) -> None:
    """With `destinationPerDurableSubscriber` the queue is named after topic, client and subscription."""
    broker, protocol = peer
    client, run, me = client_for(broker, protocol), uuid.uuid4().hex, f"me-{uuid.uuid4().hex[:6]}"
    each: dict[str, Any] = {"redelivery__destinationPerDurableSubscriber": "true", "jms__clientID": me}
    with redelivery.connect(broker.uri(protocol=protocol, **INDIVIDUAL, **each)) as connection:
        connection.listen(f"topic://{unique_queue}", fail, subscription="sub")
        connection.start()
        with Running(connection):
            connection.send(f"topic://{unique_queue}", "body", headers={"run": run})
            settled(connection, 1)
    prefix = TOPIC_PREFIX.get(broker.name, LETTERS)
    assert len(own(client, f"{prefix}{unique_queue}.{me}:sub", run, 1)) == 1


@on_each_pair
def test_discarding_by_pattern(
    peer: tuple[Broker, str], client_for: Callable[[Broker, str], Client], unique_queue: str
) -> None:
    """A cause that a regular expression matches is discarded; other messages are in the shared dead-letter queue."""
    broker, protocol = peer
    client, run = client_for(broker, protocol), uuid.uuid4().hex
    pattern: dict[str, Any] = {"redelivery__discard": rf"NO.SUCH {unique_queue}\.LOG\.[0-9]{{3}}"}
    queues = [f"{unique_queue}.{name}" for name in ("LOG.007", "LOG.07", "orders")]
    with redelivery.connect(broker.uri(protocol=protocol, **DISCARDING, **pattern)) as connection:
        for queue in queues:
            connection.listen(queue, fail)
        with Running(connection):
            for queue in queues:
                client.send(queue, queue.encode(), properties={"run": run})
            settled(connection, 2, 1)
    assert sorted(message.body or b"" for message in own(client, broker.dead_letter_queue, run, 2)) == sorted(
        queue.encode() for queue in queues[1:]
    )
    assert [own(client, queue, run) for queue in queues] == [[], [], []]


@on_each_pair
@pytest.mark.parametrize("process", [True, False])
def test_expired_here(
    peer: tuple[Broker, str], client_for: Callable[[Broker, str], Client], unique_queue: str, process: bool
) -> None:
    """A message that expires while it is parked is in the individual queue with cause `expired`, or is dropped."""
    broker, protocol = peer
    client, run = client_for(broker, protocol), uuid.uuid4().hex
    options = {**INDIVIDUAL, "redelivery__processExpired": str(process).lower()}
    with (
        redelivery.connect(broker.uri(protocol=protocol, **options)) as connection,
        connection.consumer(unique_queue) as consumer,
    ):
        client.send(unique_queue, b"first", properties={"run": run})
        first = consumer.receive(timeout=60)
        assert first is not None
        client.send(unique_queue, b"late", properties={"run": run}, ttl=4000)
        sent = time.monotonic()
        eventually(lambda: time.monotonic() - sent > 4.5, interval=0.2)
        first.accept()
        assert consumer.receive(timeout=1) is None
        settled(connection, int(process), int(not process))
    found = own(client, QUEUE_PREFIX.get(broker.name, LETTERS) + unique_queue, run, int(process))
    assert [(message.body, message.properties["redeliveryCause"]) for message in found] == (
        [(b"late", "expired")] if process else []
    )
    assert [message.expiration for message in found] == [0] * len(found), "a dead letter lives for ever"


@on_each_pair
def test_a_dead_letter_that_expires(
    peer: tuple[Broker, str], client_for: Callable[[Broker, str], Client], unique_queue: str
) -> None:
    """Every dead letter has `deadLetterExpiration`, even if the broker could have dead-lettered it itself."""
    broker, protocol = peer
    client, run = client_for(broker, protocol), uuid.uuid4().hex
    options = {**ONCE, "redelivery__deadLetterExpiration": 600_000}
    with redelivery.connect(broker.uri(protocol=protocol, **options)) as connection:
        connection.listen(unique_queue, fail)
        with Running(connection):
            client.send(unique_queue, b"body", properties={"run": run})
            settled(connection, 1)
    (found,) = own(client, broker.dead_letter_queue, run, 1)
    assert found.expiration / 1000 == pytest.approx(time.time() + 600, abs=60)


@on_each_pair
def test_dropped_when_used_up(
    peer: tuple[Broker, str], client_for: Callable[[Broker, str], Client], unique_queue: str
) -> None:
    """`sendToDlqIfMaxRetriesExceeded=false` drops exactly the messages that have used up their redeliveries."""
    broker, protocol = peer
    client, run = client_for(broker, protocol), uuid.uuid4().hex
    options = {**ONCE, "redelivery__sendToDlqIfMaxRetriesExceeded": "false"}
    errors = redelivery.Classifier().poison(KeyError)

    def handle(message: redelivery.Message) -> None:
        raise KeyError("poison") if message.text == "poison" else ValueError("failed")

    with redelivery.connect(broker.uri(protocol=protocol, **options), errors=errors) as connection:
        connection.listen(unique_queue, handle)
        with Running(connection):
            for body in (b"poison", b"fails"):
                client.send(unique_queue, body, properties={"run": run})
            settled(connection, 1, 1)
    assert [message.body for message in own(client, broker.dead_letter_queue, run, 1)] == [b"poison"]
    assert own(client, unique_queue, run) == []


@pytest.mark.parametrize("peer", [p for p in JMS_PAIRS if p[1] == "amqp"], ids="-".join, indirect=True)
def test_a_consumer_that_meets_a_message_of_the_wrong_type(
    peer: tuple[Broker, str], java_client: Callable[[Broker, str | None], JavaClient], unique_queue: str
) -> None:
    """A message of the wrong type is poison at its first delivery, because its handler raises TypeError."""
    broker, protocol = peer
    java, run, tried = java_client(broker, "qpid"), uuid.uuid4().hex, 0

    def handle(message: redelivery.Message) -> None:
        nonlocal tried
        tried += 1
        if not isinstance(message.value, str):
            raise TypeError(f"a text is expected, not a {type(message.value).__name__}")

    errors = redelivery.Classifier().poison(TypeError)
    with redelivery.connect(broker.uri(protocol=protocol), errors=errors) as connection:
        connection.listen(unique_queue, handle)
        with Running(connection):
            for kind in ("text", "map", "text"):
                java.send(unique_queue, b"body", kind=kind, properties={"run": run})
            settled(connection, 1)
            eventually(lambda: connection.report().accepted == 2)
    assert tried == 3, "no redelivery"
    found = own(java, broker.dead_letter_queue, run, 1)
    assert [message.kind for message in found] == ["map"]
    if broker.name != "activemq":  # it poisons a persistent message itself, and keeps no cause
        assert found[0].properties["redeliveryCause"] == "TypeError: a text is expected, not a dict"


@pytest.mark.parametrize("protocol", ["stomp", "amqp"])
def test_beside_artemis_own_dead_letter_queue(
    artemis: Broker, client_for: Callable[[Broker, str], Client], unique_queue: str, protocol: str
) -> None:
    """A consumer is refused if Artemis has its own dead-letter queue with that name; with a prefix it starts."""
    queue, run, client = f"ind.{unique_queue}", uuid.uuid4().hex, client_for(artemis, protocol)
    with RawAmqp(artemis) as amqp:
        amqp.send(queue, b"the broker's", properties={"run": run})
        amqp.fail(queue, 10, expected=3)
    client.send(queue, b"ours", properties={"run": run})
    with redelivery.connect(artemis.uri(protocol=protocol, **INDIVIDUAL)) as connection:
        connection.listen(queue, fail)
        with pytest.raises(
            redelivery.AdapterError, match=rf"the dead-letter destination queue://DLQ\.{queue} cannot be used"
        ):
            connection.run()
    assert [message.body for message in own(client, queue, run, 1)] == [b"ours"], "it was not touched"
    other = {**INDIVIDUAL, "redelivery__queuePrefix": "DEAD."}
    with redelivery.connect(artemis.uri(protocol=protocol, **other)) as connection:
        connection.listen(queue, fail)
        client.send(queue, b"ours", properties={"run": run})
        with Running(connection):
            settled(connection, 1)
    assert [message.body for message in own(client, f"DEAD.{queue}", run, 1)] == [b"ours"]

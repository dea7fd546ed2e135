"""Dead-letter strategies on real brokers; what is in the dead-letter queues is looked at by another client."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any

import pytest

import redelivery
from integration.eventually import eventually
from integration.peers import PAIRS
from integration.raw_amqp import RawAmqp
from integration.work import Running

if TYPE_CHECKING:
    from collections.abc import Callable

    from integration.brokers import Broker
    from integration.conftest import Client
    from integration.java_client import JavaClient, JmsMessage

ONCE: dict[str, Any] = {"jms__redeliveryPolicy__maximumRedeliveries": 0}
INDIVIDUAL: dict[str, Any] = {**ONCE, "redelivery__deadLetterStrategy": "individual"}
DISCARDING: dict[str, Any] = {**ONCE, "redelivery__deadLetterStrategy": "discarding"}
QUEUE_PREFIX = {"activemq": "ActiveMQ.DLQ.Queue."}
TOPIC_PREFIX = {"activemq": "ActiveMQ.DLQ.Topic."}
LETTERS = "DLQ."  # of all the others
WILD = [pair for pair in PAIRS if pair[0] in ("activemq", "artemis")]
JMS_PAIRS = [pair for pair in PAIRS if pair != ("rabbitmq", "stomp")]
on_each_pair = pytest.mark.parametrize("peer", PAIRS, ids="-".join, indirect=True)


def fail(message: redelivery.Message) -> None:
    """Never succeed."""
    raise ValueError(f"no {message.text}")


def settled(connection: redelivery.Connection, poisoned: int, discarded: int = 0) -> None:
    """Wait until so many messages have been dead-lettered and dropped."""

    def done() -> bool:
        report = connection.report()
        return (report.poisoned, report.discarded) == (poisoned, discarded)

    eventually(done, 60, message=f"{poisoned} poisoned and {discarded} discarded")


def own(client: Client, queue: str, run: str) -> list[JmsMessage]:
    """Take what is of this run from a queue; RabbitMQ heeds no selector over AMQP 1.0, and gives others' as well."""
    found = client.drain(queue, selector=f"run = '{run}'")
    return [message for message in found if message.properties.get("run") == run]


@on_each_pair
def test_each_queue_has_its_own(
    peer: tuple[Broker, str], client_for: Callable[[Broker, str], Client], unique_queue: str
) -> None:
    """Persistent or not, a poison message is in the queue named after its own, with its cause."""
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
        found = own(client, prefix + queue, run)
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
    """The message's own queue names the dead-letter queue; so does a topic; prefix and suffix are the user's."""
    broker, protocol = peer
    client, run = client_for(broker, protocol), uuid.uuid4().hex
    names: dict[str, Any] = {
        "redelivery__queuePrefix": "DEAD.", "redelivery__queueSuffix": ".q",
        "redelivery__topicPrefix": "LATE.", "redelivery__topicSuffix": ".t",
    }  # fmt: skip
    queues = [f"{unique_queue}.w.{name}" for name in ("a", "b")]
    with redelivery.connect(broker.uri(protocol=protocol, **INDIVIDUAL, **names)) as connection:
        connection.listen(f"{unique_queue}.w.*", fail)
        connection.listen(f"topic://{unique_queue}.t", fail)
        connection.start()  # Artemis gives a wildcard, and all a topic, only what comes from then on
        with Running(connection):
            for queue in queues:
                client.send(queue, b"from a queue", properties={"run": run})
            client.send(None, b"from a topic", topic=f"{unique_queue}.t", properties={"run": run})
            settled(connection, 3)
    for queue in queues:
        assert [message.body for message in own(client, f"DEAD.{queue}.q", run)] == [b"from a queue"]
    assert [message.body for message in own(client, f"LATE.{unique_queue}.t.t", run)] == [b"from a topic"]


@pytest.mark.parametrize("peer", WILD, ids="-".join, indirect=True)
def test_each_durable_subscription_has_its_own(
    peer: tuple[Broker, str], client_for: Callable[[Broker, str], Client], unique_queue: str
) -> None:
    """With `destinationPerDurableSubscriber`: named after topic, client and subscription."""
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
    assert len(own(client, f"{prefix}{unique_queue}.{me}:sub", run)) == 1


@on_each_pair
def test_discarding_by_pattern(
    peer: tuple[Broker, str], client_for: Callable[[Broker, str], Client], unique_queue: str
) -> None:
    """What a regular expression names is gone; the rest is in the shared dead-letter queue."""
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
    assert sorted(message.body or b"" for message in own(client, broker.dead_letter_queue, run)) == sorted(
        queue.encode() for queue in queues[1:]
    )
    assert [own(client, queue, run) for queue in queues] == [[], [], []]


@on_each_pair
@pytest.mark.parametrize("process", [True, False])
def test_expired_here(
    peer: tuple[Broker, str], client_for: Callable[[Broker, str], Client], unique_queue: str, process: bool
) -> None:
    """What expires while it waits here is in the individual queue with cause `expired`, or dropped if so configured."""
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
    found = own(client, QUEUE_PREFIX.get(broker.name, LETTERS) + unique_queue, run)
    assert [(message.body, message.properties["redeliveryCause"]) for message in found] == (
        [(b"late", "expired")] if process else []
    )
    assert [message.expiration for message in found] == [0] * len(found), "a dead letter lives for ever"


@on_each_pair
def test_a_dead_letter_that_expires(
    peer: tuple[Broker, str], client_for: Callable[[Broker, str], Client], unique_queue: str
) -> None:
    """`deadLetterExpiration` is on every dead letter, also where the broker would have poisoned it itself."""
    broker, protocol = peer
    client, run = client_for(broker, protocol), uuid.uuid4().hex
    options = {**ONCE, "redelivery__deadLetterExpiration": 600_000}
    with redelivery.connect(broker.uri(protocol=protocol, **options)) as connection:
        connection.listen(unique_queue, fail)
        with Running(connection):
            client.send(unique_queue, b"body", properties={"run": run})
            settled(connection, 1)
    (found,) = own(client, broker.dead_letter_queue, run)
    assert found.expiration / 1000 == pytest.approx(time.time() + 600, abs=60)


@on_each_pair
def test_dropped_when_used_up(
    peer: tuple[Broker, str], client_for: Callable[[Broker, str], Client], unique_queue: str
) -> None:
    """`sendToDlqIfMaxRetriesExceeded=false` drops what has used up its redeliveries, and nothing else."""
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
    assert [message.body for message in own(client, broker.dead_letter_queue, run)] == [b"poison"]
    assert own(client, unique_queue, run) == []


@pytest.mark.parametrize("peer", [p for p in JMS_PAIRS if p[1] == "amqp"], ids="-".join, indirect=True)
def test_a_consumer_that_meets_a_message_of_the_wrong_type(
    peer: tuple[Broker, str], java_client: Callable[[Broker, str | None], JavaClient], unique_queue: str
) -> None:
    """Its handler raises TypeError: the classifier poisons it at its first delivery, and the others are done."""
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
    found = [
        message for message in java.drain(broker.dead_letter_queue) if message.properties.get("run") == run
    ]
    assert [message.kind for message in found] == ["map"]
    if broker.name != "activemq":  # it poisons a persistent message itself, and keeps no cause
        assert found[0].properties["redeliveryCause"] == "TypeError: a text is expected, not a dict"


@pytest.mark.parametrize("protocol", ["stomp", "amqp"])
def test_beside_artemis_own_dead_letter_queue(
    artemis: Broker, client_for: Callable[[Broker, str], Client], unique_queue: str, protocol: str
) -> None:
    """It makes one of the same name at another address: a consumer is refused at its start; with a prefix it is not."""
    queue, run, client = f"ind.{unique_queue}", uuid.uuid4().hex, client_for(artemis, protocol)
    with RawAmqp(artemis) as amqp:
        amqp.send(queue, b"the broker's", properties={"run": run})
        amqp.fail(queue, 10)
    client.send(queue, b"ours", properties={"run": run})
    with redelivery.connect(artemis.uri(protocol=protocol, **INDIVIDUAL)) as connection:
        connection.listen(queue, fail)
        with pytest.raises(
            redelivery.AdapterError, match=rf"the dead-letter destination queue://DLQ\.{queue} cannot be used"
        ):
            connection.run()
    assert [message.body for message in own(client, queue, run)] == [b"ours"], "it was not touched"
    other = {**INDIVIDUAL, "redelivery__queuePrefix": "DEAD."}
    with redelivery.connect(artemis.uri(protocol=protocol, **other)) as connection:
        connection.listen(queue, fail)
        client.send(queue, b"ours", properties={"run": run})
        with Running(connection):
            settled(connection, 1)
    assert [message.body for message in own(client, f"DEAD.{queue}", run)] == [b"ours"]

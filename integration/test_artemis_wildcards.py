"""Wildcards on Artemis: what a consumer with one gets, and which queues the dead-letter tools find by a pattern.

docs/measured/artemis-stomp.md, "Wildcards", has the facts.
"""

from __future__ import annotations

import json
import uuid
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from tests.cli.conftest import cli

import redelivery
from integration.eventually import eventually
from integration.raw_stomp import RawStomp
from integration.test_dead_letters import NO_RETRY, received
from redelivery.core.dead_lettering.redrive import Redrive
from redelivery.dlq.dlq_connection import DeadLetterConnection
from redelivery.driver.port import ConnectionPort

if TYPE_CHECKING:
    from collections.abc import Callable

    from integration.brokers import Broker

__all__ = ["cli"]  # the fixture

PROTOCOLS = ["amqp", "stomp"]
INDIVIDUAL: dict[str, Any] = {"redelivery__deadLetterStrategy": "individual"}


def queues(broker: Broker, stem: str) -> list[str]:
    """The names of all queues of the broker that begin so, by a client that is not the library's."""
    with RawStomp(broker, auto_content_length=False) as raw:
        answers = f"management.{uuid.uuid4().hex}"
        raw.subscribe(answers)
        headers = {
            "_AMQ_ResourceName": "broker",
            "_AMQ_OperationName": "getQueueNames",
            "reply-to": answers,
        }
        raw.connection.send("activemq.management", "[]", headers=headers)
        answer = raw.next(20.0)
        assert answer is not None
        return sorted(name for name in json.loads(answer.body)[0] if name.startswith(stem))


def poison(broker: Broker, protocol: str, names: list[str], stem: str, body: str) -> None:
    """Send one message to each queue; each leaves a dead letter in a queue of its own."""
    uri = broker.uri(protocol=protocol, redelivery__queuePrefix=f"{stem}.", **INDIVIDUAL)

    def fails(message: redelivery.Message) -> None:
        raise ValueError(message.text)

    with redelivery.connect(uri, policies=NO_RETRY) as connection:
        for name in names:
            connection.listen(name, fails)
            connection.send(name, body)
        connection.start()
        eventually(lambda: connection.report().poisoned == len(names), 30)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_tools_find_the_queues_that_match(
    artemis: Broker, new_queue: Callable[[], str], cli: Any, protocol: str
) -> None:
    """A pattern means the queues whose names match: all their dead letters are seen, redriven, and no queue is left."""
    names, stem = [new_queue(), new_queue()], new_queue()
    poison(artemis, protocol, names, stem, "first")
    poison(artemis, protocol, names, stem, "second")
    own = [f"{stem}.{name}" for name in names]
    uri, pattern = artemis.uri(protocol=protocol), f"{stem}.>"
    take = ["--take"] if protocol == "stomp" else []
    ended = cli("dlq", "summary", *take, uri, pattern)
    assert (ended.code, f"4 dead letters in queue://{pattern}" in ended.err) == (0, True), ended
    assert len(cli("dlq", "list", *take, uri, pattern, "--output", "jsonl").out.splitlines()) == 4
    ended = cli("dlq", "redrive", uri, pattern)
    assert (ended.code, ended.out.splitlines()[0]) == (0, "4 redriven")
    ended = cli("dlq", "summary", *take, uri, pattern)
    assert "it is empty" in ended.err, ended.err
    with redelivery.connect(artemis.uri(protocol=protocol)) as connection:
        for name in names:
            assert [each.text for each in received(connection, name, 2)] == ["first", "second"]
        for each in own:
            assert received(connection, each, 0) == []
    assert set(queues(artemis, stem)) <= set(own), "no queue of the wildcard"


@pytest.mark.ci("a purge by a pattern")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_purge_by_a_pattern_leaves_subscribers_alone(
    artemis: Broker, new_queue: Callable[[], str], cli: Any, protocol: str
) -> None:
    """A purge deletes from the queues that match, and neither from a durable subscription nor from another queue."""
    stem, topic = new_queue(), new_queue()
    uri = artemis.uri(protocol=protocol)
    with redelivery.connect(artemis.uri(protocol=protocol, jms__clientID=stem)) as connection:
        consumer = connection.consumer(f"topic://{topic}", subscription="mine")
        consumer.close()
        connection.send(f"topic://{topic}", "for the subscriber")
        for name in (f"{stem}.a", f"{stem}.b.c", f"{stem}x"):
            connection.send(name, name)
    ended = cli("dlq", "purge", "--yes", uri, f"{stem}.>")
    assert (ended.code, ended.out.strip()) == (0, "2 dropped")
    with redelivery.connect(artemis.uri(protocol=protocol, jms__clientID=stem)) as connection:
        assert [each.text for each in received(connection, f"{stem}x", 1)] == [f"{stem}x"]
        consumer = connection.consumer(f"topic://{topic}", subscription="mine")
        message = consumer.receive(timeout=20)
        assert message is not None
        assert message.text == "for the subscriber"
        message.accept()


@pytest.mark.ci("queues that the broker made")
def test_dead_letters_in_queues_that_artemis_made(artemis: Broker, new_queue: Callable[[], str]) -> None:
    """A pattern finds the queues of `auto-create-dead-letter-resources`, and their letters go back to their origins."""
    names = [f"ind.{new_queue()}" for _ in range(2)]
    uri = artemis.uri(protocol="amqp", redelivery__deadLetter="ack")
    with redelivery.connect(uri, policies=NO_RETRY) as connection:
        for name in names:
            connection.send(name, name)
            message = connection.consumer(name).receive(timeout=20)
            assert message is not None
            message.fail("bad")
        eventually(lambda: connection.report().poisoned == 2, 30)
    with redelivery.dead_letters(uri, "DLQ.ind.>") as dead:
        eventually(
            lambda: {f"queue://{name}" for name in names} <= {each.original_destination for each in dead}, 30
        )
        assert dead.redrive(destination=[f"queue://{name}" for name in names]).redriven == 2
    with redelivery.connect(uri) as connection:
        for name in names:
            assert [each.text for each in received(connection, name, 1)] == [name]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_wildcard_consumer_is_refused(
    artemis: Broker, new_queue: Callable[[], str], cli: Any, protocol: str
) -> None:
    """A consumer with a wildcard, and `doctor`, get the reason and the option; no queue is left at the broker."""
    stem = new_queue()
    uri = artemis.uri(protocol=protocol)
    with redelivery.connect(uri) as connection:
        for name in (f"{stem}.>", f"{stem}.*"):
            with pytest.raises(redelivery.ConfigurationError, match=r"redelivery\.wildcards=address"):
                connection.consumer(name)
        with pytest.raises(redelivery.ConfigurationError, match="write > at its end"):
            connection.consumer(f"{stem}.#")
    assert cli("doctor", uri, f"{stem}.>").code == 78
    meant = artemis.uri(protocol=protocol, redelivery__wildcards="address")
    ended = cli("doctor", meant, f"{stem}.>")
    assert "the first consumer makes its queue" in ended.out
    with (
        redelivery.dead_letters(uri, f"{stem}.#", take=True) as dead,
        pytest.raises(redelivery.ConfigurationError, match="write > at its end"),
    ):
        dead.summary()
    assert queues(artemis, stem) == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_a_wildcard_is_to_artemis(artemis: Broker, new_queue: Callable[[], str], protocol: str) -> None:
    """With `redelivery.wildcards=address` a consumer gets a copy of each later message, which stays in its queue."""
    stem = new_queue()
    with ExitStack() as stack:
        uri = artemis.uri(protocol=protocol, redelivery__wildcards="address")
        connection = stack.enter_context(redelivery.connect(uri))
        connection.send(f"{stem}.a", "stored")
        consumer = connection.consumer(f"{stem}.>")
        connection.send(f"{stem}.a", "later")
        message = consumer.receive(timeout=20)
        assert message is not None
        assert (message.text, message.destination) == ("later", f"queue://{stem}.a")
        message.accept()
        assert consumer.receive(timeout=1) is None
        consumer.close()
        assert [each.text for each in received(connection, f"{stem}.a", 2)] == ["stored", "later"]
    assert f"{stem}.#" in queues(artemis, stem), "its queue stays"


@pytest.mark.ci("topics with a wildcard")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_wildcard_of_topics_is_right(artemis: Broker, new_queue: Callable[[], str], protocol: str) -> None:
    """A subscriber with a wildcard gets each message of the topics once, and so does a subscriber of one of them."""
    stem = new_queue()
    with redelivery.connect(artemis.uri(protocol=protocol)) as connection:
        both = [connection.consumer(f"topic://{name}") for name in (f"{stem}.>", f"{stem}.a")]
        connection.send(f"topic://{stem}.a", "x")
        for consumer in both:
            message = consumer.receive(timeout=20)
            assert message is not None
            assert (message.text, message.destination) == ("x", f"topic://{stem}.a")
            message.accept()
            assert consumer.receive(timeout=0.5) is None


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_spark_gets_no_queue_of_a_wildcard(
    artemis: Broker, new_queue: Callable[[], str], protocol: str
) -> None:
    """The consumers and the browser that Spark reads with are refused, and leave no queue."""
    stem = new_queue()
    with ConnectionPort(artemis.uri(protocol=protocol)) as port:
        with pytest.raises(redelivery.ConfigurationError, match=r"redelivery\.wildcards=address"):
            port.plan(f"{stem}.>", {}, sets_aside=True)
        with pytest.raises(redelivery.ConfigurationError, match="name each queue"):
            list(port.browse(f"queue://{stem}.>", window=1))
    with (
        DeadLetterConnection(artemis.uri(protocol=protocol, redelivery__wildcards="address")) as drain,
        pytest.raises(redelivery.ConfigurationError, match="name each queue"),
        drain.taker(f"queue://{stem}.>", Redrive("")),
    ):
        pass
    assert queues(artemis, stem) == []

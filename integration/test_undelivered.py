"""A message that the broker cannot deliver over a protocol stops the consumer of its queue; the error has the cure.

The messages beside it are not accused, and are handled over the other protocol.
"""

from __future__ import annotations

import importlib
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

import redelivery
from integration.eventually import eventually
from integration.peers import RABBITMQ_4
from integration.producers import PIKA
from integration.raw_amqp import RawAmqp

if TYPE_CHECKING:
    from collections.abc import Callable

    from integration.brokers import Broker

pytestmark = pytest.mark.ci("needs what one broker cannot convert")


def uri_of(broker: Broker, protocol: str, queue: str) -> str:
    """Return a URI with a dead-letter queue of the test's own: the DLQ of RabbitMQ 4 is a quorum queue in the tests."""
    return broker.uri(protocol=protocol, redelivery__deadLetterDestination=f"{queue}.dead")


def stopped(broker: Broker, protocol: str, queue: str) -> str:
    """Consume the queue beside a good one until its consumer stops; return the error that `health()` has."""
    other = f"{queue}.other"
    with redelivery.connect(uri_of(broker, protocol, queue)) as connection:
        connection.listen(other, lambda _: None)
        connection.listen(queue, lambda _: None)
        with pytest.raises(redelivery.AdapterError):
            connection.run()
        bad = next(each for each in connection.health().consumers if each.destination == f"queue://{queue}")
        assert not connection.health().live
        assert str(bad.error).endswith(str(connection.error))
        return str(connection.error)


def handled(broker: Broker, protocol: str, queue: str) -> None:
    """Handle messages over another protocol, one at least; Artemis may stand still for 10 s after lost connections."""
    with redelivery.connect(uri_of(broker, protocol, queue)) as connection:
        connection.listen(queue, lambda _: None)
        connection.start()
        eventually(lambda: connection.report().accepted)


@pytest.mark.parametrize("peer", [("artemis", "stomp")], ids="-".join, indirect=True)
@pytest.mark.parametrize("bad_first", [True, False])
def test_a_body_that_artemis_cannot_convert(
    peer: tuple[Broker, str], new_queue: Callable[[], str], *, bad_first: bool
) -> None:
    """A sequence stops the consumer over STOMP, which names the queue and AMQP; over AMQP it is handled."""
    broker, _ = peer
    queue = new_queue()
    with RawAmqp(broker) as raw:
        if not bad_first:
            raw.send(queue, "good 0")
        raw.send(queue, [1, "two", {"three": 3}], inferred=True)
        raw.send(queue, "good 1")
    error = stopped(broker, "stomp", queue)
    assert f"ended the consumer of queue://{queue} 3 times" in error
    assert f"use AMQP, which delivers it like any other: redelivery dlq redrive AMQP-URI {queue}" in error
    handled(broker, "amqp", queue)


@pytest.mark.skipif(not PIKA, reason="pika is not installed (the extra test-all)")
@pytest.mark.parametrize("peer", [(RABBITMQ_4, "amqp")], ids="-".join, indirect=True)
def test_a_header_that_rabbitmq_cannot_convert(
    peer: tuple[Broker, str], new_queue: Callable[[], str]
) -> None:
    """A decimal of AMQP 0.9.1 stops the consumer over AMQP, which names the queue and STOMP; there it is handled."""
    broker, _ = peer
    queue, pika = new_queue(), importlib.import_module("pika")
    login: Any = pika.PlainCredentials(broker.user, broker.password)
    with pika.BlockingConnection(
        pika.ConnectionParameters(broker.host, broker.ports["amqp"], credentials=login)
    ) as raw:
        channel = raw.channel()
        channel.queue_declare(queue, durable=True)
        for body, headers in ((b"good 0", {}), (b"bad", {"price": Decimal("1.5")}), (b"good 1", {})):
            channel.basic_publish("", queue, body, pika.BasicProperties(headers=headers, delivery_mode=2))
    error = stopped(broker, "amqp", queue)
    assert f"ended the consumer of queue://{queue} 3 times" in error
    assert "consume the queue over STOMP" in error
    assert "good" not in error
    handled(broker, "stomp", queue)


@pytest.mark.parametrize("peer", [(RABBITMQ_4, "amqp"), (RABBITMQ_4, "stomp")], ids="-".join, indirect=True)
def test_a_stream_is_refused(peer: tuple[Broker, str], new_queue: Callable[[], str]) -> None:
    """A stream is refused over both protocols, with what to consume instead."""
    broker, protocol = peer
    queue = new_queue()
    with RawAmqp(broker) as raw:
        raw.declare(queue, {"x-queue-type": "stream"})
    with (
        redelivery.connect(uri_of(broker, protocol, queue)) as connection,
        pytest.raises(redelivery.AdapterError, match="bind a quorum or classic queue"),
    ):
        connection.consumer(queue)

"""Settings of the test brokers as their docstrings describe them: rights, dead letters, limits."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from integration.availability import own_settings
from integration.brokers import RabbitMQ
from integration.eventually import eventually
from integration.peers import put, take
from integration.raw_amqp import AmqpError, RawAmqp
from integration.raw_stomp import RawStomp, stomp

if TYPE_CHECKING:
    from collections.abc import Callable

    from integration.brokers import Broker

pytestmark = pytest.mark.ci("settings of brokers that matter for redelivery")


@pytest.mark.parametrize("verb", ["send", "receive"])
def test_nobody_may_touch_what_is_denied(any_broker: Broker, new_queue: Callable[[], str], verb: str) -> None:
    """A link, or a message, to `denied.` is refused over AMQP; other tests check STOMP."""
    queue = f"denied.{new_queue()}"
    with pytest.raises(AmqpError):
        RawAmqp(any_broker).send(queue) if verb == "send" else _receive(any_broker, queue)
    put(any_broker, "amqp", new_queue())


def _receive(broker: Broker, queue: str) -> None:
    # The time to wait for a message is not a time-out of the link.
    RawAmqp(broker).receive(queue, timeout=0.5)


@pytest.mark.own_broker("reads its dead-letter queue")
def test_brokerj_has_no_limit_unless_the_name_says_so(brokerj: Broker, new_queue: Callable[[], str]) -> None:
    """A message on Broker-J may fail any number of times, or goes to the DLQ after three, by the queue's name."""
    forever, thrice = new_queue(), f"max3.{new_queue()}"
    for queue, limit, expected in ((forever, 15, 15), (thrice, 15, 3)):
        put(brokerj, "amqp", queue, queue.encode())
        with RawAmqp(brokerj) as raw:
            assert raw.fail(queue, limit, expected=expected) == list(range(expected))
    assert take(brokerj, "amqp", brokerj.dead_letter_queue) == thrice.encode()
    assert take(brokerj, "amqp", forever) == forever.encode()


@pytest.mark.own_broker("reads its dead-letter queue")
def test_rabbitmq_dead_letters_only_where_the_name_says_so(
    rabbitmq: Broker, new_queue: Callable[[], str]
) -> None:
    """A rejected message on RabbitMQ goes to DLQ, or is dropped, by the queue's name."""
    dropped, kept = new_queue(), f"dlx.{new_queue()}"
    for queue in (dropped, kept):
        put(rabbitmq, "stomp", queue, queue.encode())
        with RawStomp(rabbitmq) as raw:
            raw.subscribe(queue)
            frame = raw.next()
            assert frame is not None
            raw.connection.nack(frame.headers["ack"], receipt="n", requeue="false")
            raw.confirmed("n")
    assert take(rabbitmq, "stomp", "DLQ") == kept.encode()
    assert take(rabbitmq, "stomp", "DLQ", timeout=0.5) is None


def test_rabbitmq_has_a_second_virtual_host(rabbitmq: Broker, unique_queue: str) -> None:
    """A queue of the second virtual host is not the queue of that name in the first."""
    with RawStomp(rabbitmq, vhost="second") as raw:
        raw.send(unique_queue, b"there")
    assert take(rabbitmq, "stomp", unique_queue, timeout=0.5) is None


def test_rabbitmqs_stranger_may_enter_and_touch_nothing(rabbitmq: RabbitMQ, unique_queue: str) -> None:
    """RabbitMQ's user `stranger` may log in, but use no queue."""
    put(rabbitmq, "stomp", unique_queue)
    raw = RawStomp(rabbitmq).connect(rabbitmq.stranger, rabbitmq.password)
    raw.subscribe(unique_queue)
    error = raw.next()
    assert error is not None
    assert (error.command, error.headers["message"]) == ("ERROR", "access_refused")
    with pytest.raises(AmqpError):
        RawAmqp(rabbitmq, rabbitmq.stranger, rabbitmq.password, timeout=5.0).send(unique_queue)


def test_rabbitmqs_quorum_queues_count(rabbitmq: Broker, unique_queue: str) -> None:
    """A message of a quorum queue has a header with its earlier deliveries, from the second delivery on."""
    counts: list[str | None] = []
    for _ in range(3):
        with RawStomp(rabbitmq) as raw:
            raw.subscribe(unique_queue, x_queue_type="quorum", durable="true", auto_delete="false")
            if not counts:
                raw.connection.send(
                    rabbitmq.destination(unique_queue), b"x", headers={"x-queue-type": "quorum"}
                )
            frame = raw.next()
            assert frame is not None
            counts.append(frame.headers.get("x-delivery-count"))
    assert counts == [None, "1", "2"]


def test_rabbitmqs_consumer_timeout_can_be_set(unique_queue: str) -> None:
    """A consumer that keeps a message too long loses its connection; from 4.3 on, only on a quorum queue."""
    with own_settings(RabbitMQ, consumer_timeout_ms=1000, tick_ms=500) as broker:
        newer = broker.release >= (4, 3)
        kind = "quorum" if newer else "classic"
        raw = RawStomp(broker).connect()
        raw.subscribe(unique_queue, x_queue_type=kind, durable="true", auto_delete="false")
        raw.connection.send(broker.destination(unique_queue), b"x", headers={"x-queue-type": kind})
        assert raw.next() is not None
        eventually(lambda: raw.errors, message="the consumer is thrown out")
        said = "Server cancelled subscription" if newer else "precondition_failed"
        assert raw.errors[0].headers["message"] == said
        with suppress(stomp.exception.StompException):
            raw.connection.disconnect()

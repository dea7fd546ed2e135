"""A RabbitMQ that is out of memory reads nothing more from STOMP publishers, and goes on sending heart-beats.

Over AMQP 1.0 it still reads everything (3.10.8).
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

import pytest

import redelivery
from integration.brokers import RabbitMQ
from integration.eventually import eventually, never
from integration.peers import take
from integration.work import Running
from redelivery.adapter_support.sockets import ResponseTimeout
from redelivery.core import pending_confirms
from redelivery_stomp import subscribing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from integration.brokers import Broker

pytestmark = [pytest.mark.ci("a broker without memory"), pytest.mark.own_broker("fills it")]

MESSAGES = 10
LONG = 1.0  # seconds without an answer, instead of 30
PATIENCE = 1.5  # seconds without an answer for which other requests wait, instead of 60


@contextlib.contextmanager
def out_of_memory(broker: RabbitMQ, connection: redelivery.Connection, queue: str) -> Iterator[None]:
    """Raise the alarm for the block; the broker has read one more message of this connection, and reads nothing more.

    It reads until a message arrives; it would read all of several that arrive in one piece.
    """
    broker.control("set_vm_memory_high_watermark", "absolute", "1")
    try:
        eventually(lambda: "memory" in broker.control("eval", "rabbit_alarm:get_alarms()."), interval=0.5)
        with contextlib.suppress(redelivery.TransportError):
            connection.send(queue, "last read", timeout=5.0)
        yield
    finally:
        broker.control("set_vm_memory_high_watermark", "0.4")


def dead_letters_of(broker: Broker, graves: str, expected: int) -> list[str]:
    """Take all messages of a queue, the first `expected` with patience; return their bodies, sorted."""
    bodies: list[str] = []
    while body := take(broker, "stomp", graves, timeout=60.0 if len(bodies) < expected else 1.0):
        bodies.append(body.decode())
    return sorted(bodies)


def test_dead_letters_during_a_memory_alarm_are_written_once(
    rabbitmq: Broker,
    unique_queue: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Dead letters without an answer are waited for on the same connection: each copy is there once after the alarm."""
    assert isinstance(rabbitmq, RabbitMQ)
    monkeypatch.setattr(pending_confirms, "CONFIRM_TIMEOUT", LONG)
    graves = f"{unique_queue}.graves"
    uri = rabbitmq.uri(redelivery__deadLetterDestination=graves, jms__redeliveryPolicy__maximumRedeliveries=0)
    ready, alarmed = threading.Barrier(2), threading.Event()

    def work(message: redelivery.Message) -> None:
        if message.text == "0":
            ready.wait(60)
            alarmed.wait(60)
        raise ValueError(message.text)

    with redelivery.connect(uri) as connection:
        for number in range(MESSAGES):
            connection.send(unique_queue, str(number))
        connection.listen(unique_queue, work, credit=1000)
        with Running(connection) as running:
            ready.wait(60)
            with out_of_memory(rabbitmq, connection, graves):
                alarmed.set()
                eventually(
                    lambda: caplog.text.count("has not confirmed its poison acknowledgement") >= MESSAGES
                )
                with pytest.raises(redelivery.TransportError, match="may have been sent"):
                    connection.send(graves, "impatient", timeout=3 * LONG)
                assert (running.ended, connection.connected) == (False, True)
            eventually(lambda: connection.report().poisoned == MESSAGES)
    assert dead_letters_of(rabbitmq, graves, MESSAGES + 2) == sorted(
        [*map(str, range(MESSAGES)), "last read", "impatient"]
    )
    assert take(rabbitmq, "stomp", unique_queue, timeout=0.5) is None


def test_a_consumer_that_begins_during_a_memory_alarm(
    rabbitmq: Broker, unique_queue: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A consumer that starts during an alarm does not end the connection, which would copy twice; it starts later."""
    assert isinstance(rabbitmq, RabbitMQ)
    monkeypatch.setattr(pending_confirms, "CONFIRM_TIMEOUT", LONG)
    monkeypatch.setattr(
        subscribing, "ResponseTimeout", lambda over, silent: ResponseTimeout(over, PATIENCE, silent=silent)
    )
    graves, other = f"{unique_queue}.graves", f"{unique_queue}.other"
    uri = rabbitmq.uri(redelivery__deadLetterDestination=graves, jms__redeliveryPolicy__maximumRedeliveries=0)
    ready, alarmed, served = threading.Barrier(2), threading.Event(), threading.Event()

    def begin() -> None:
        if connection.consumer(other).receive(timeout=60) is not None:
            served.set()

    def work(message: redelivery.Message) -> None:
        if message.text == "0":
            ready.wait(60)
            alarmed.wait(60)
        raise ValueError(message.text)

    with redelivery.connect(uri) as connection:
        connection.send(other, "waits")
        for number in range(MESSAGES):
            connection.send(unique_queue, str(number))
        connection.listen(unique_queue, work, credit=1000)
        with Running(connection):
            ready.wait(60)
            with out_of_memory(rabbitmq, connection, graves):
                alarmed.set()
                eventually(
                    lambda: caplog.text.count("has not confirmed its poison acknowledgement") >= MESSAGES
                )
                begins = threading.Thread(target=begin)
                begins.start()
                never(lambda: "has not answered a consumer" in caplog.text or served.is_set(), 4 * PATIENCE)
            assert served.wait(60)
            begins.join(60)
            eventually(lambda: connection.report().poisoned == MESSAGES)
    assert dead_letters_of(rabbitmq, graves, MESSAGES + 1) == sorted(
        [*map(str, range(MESSAGES)), "last read"]
    )

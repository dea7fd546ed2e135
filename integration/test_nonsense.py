"""Nonsensical messages over AMQP: those that a broker accepts are handled, dead-lettered, and kept byte for byte."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import redelivery
from integration.eventually import eventually
from integration.raw_amqp import AmqpError, RawAmqp
from integration.work import Running

if TYPE_CHECKING:
    from collections.abc import Callable

    from integration.brokers import Broker
    from integration.proxy import LinkProxy

pytestmark = pytest.mark.ci("what no broker sends")

HEADER, PROPERTIES = b"\0Sp\xc0\x02\x01A", b"\0Ss\xc0\x05\x01\xa1\x02id"
BODY = b"\0Su\xa0\x04body"
ODD = {
    "a property that is not UTF-8": HEADER + PROPERTIES + b"\0St\xc1\x07\x02\xa1\x01k\xa1\x01\xff" + BODY,
    "a data section that is no binary": HEADER + PROPERTIES + b"\0Su\xa1\x04text",
    "a description of a description, and so on": HEADER + PROPERTIES + b"\0Sw" + b"\0" * 3000,
    "cut off": (HEADER + PROPERTIES + BODY)[:-2],
    "no sections": b"\xff" * 20,
}
# The message that each of the four accepts. Broker-J refuses all others, and RabbitMQ does not answer them.
EVERYWHERE = "a property that is not UTF-8"
PASS_ON = {"activemq", "artemis"}
POLICIES = redelivery.RedeliveryPolicyMap(default=redelivery.RedeliveryPolicy(maximum_redeliveries=0))


def taken(broker: Broker, queue: str, message: bytes) -> bool:
    """True if the broker accepts it; the broker may close the connection."""
    try:
        with RawAmqp(broker, timeout=10.0) as raw:
            return raw.send_encoded(queue, message)
    except AmqpError:
        return False


def test_a_message_that_makes_no_sense_is_poison_and_nothing_worse(
    any_broker: Broker, make_proxy: Callable[..., LinkProxy], new_queue: Callable[[], str]
) -> None:
    """A nonsensical message reaches the handler as far as it can be read, or as bytes; its dead letter has the same."""
    proxy, sent = make_proxy(any_broker.ports["amqp"], opaque=True), list[str]()
    for what, message in ODD.items() if any_broker.name in PASS_ON else [(EVERYWHERE, ODD[EVERYWHERE])]:
        queue, seen = new_queue(), list[bytes]()
        dead_letters = f"{queue}.dead"
        if not taken(any_broker, queue, message):
            continue
        sent.append(what)
        links = proxy.links_ever
        uri = any_broker.uri(protocol="amqp", port=proxy.port, redelivery__deadLetterDestination=dead_letters)
        with redelivery.connect(uri, policies=POLICIES) as connection:
            poisoned(connection, queue, seen)
            assert proxy.links_ever == links + 1, f"{what}: no other connection was needed"
        with redelivery.connect(any_broker.uri(protocol="amqp")) as connection:
            dead = connection.consumer(dead_letters).receive(timeout=30)
        assert dead is not None
        assert [dead.body] == seen, what
        assert dead.headers["redeliveryCause"] == "ValueError: odd"
    print(f"\n{any_broker.name} takes: {'; '.join(sent)}")
    assert EVERYWHERE in sent


def poisoned(connection: redelivery.Connection, queue: str, seen: list[bytes]) -> None:
    """Handle one message, which fails, and wait until its dead letter is confirmed."""

    def handle(message: redelivery.Message) -> None:
        seen.append(message.body)
        raise ValueError("odd")

    connection.listen(queue, handle)
    with Running(connection):
        eventually(lambda: connection.report().poisoned == 1, 60, message="its dead letter")

"""Doctor without `--create` leaves each broker as it was; what it advises on RabbitMQ 4 then works."""

from __future__ import annotations

import re

import pytest

import redelivery
from integration.brokers import Broker, RabbitMQ
from integration.test_artemis_wildcards import queues
from integration.test_doctor import PATIENT, Diagnosis

pytestmark = pytest.mark.ci("the doctor on each broker")

MAKERS = [("artemis", "stomp"), ("artemis", "amqp"), ("rabbitmq", "stomp"), ("rabbitmq", "amqp")]
MAKERS += [("rabbitmq4", "stomp"), ("rabbitmq4", "amqp")]


def names(broker: Broker, stem: str) -> list[str]:
    """Return the broker's queues whose names begin so, as the broker itself lists them."""
    if isinstance(broker, RabbitMQ):
        listed = broker.control("list_queues", "name").splitlines()
        return sorted(name for name in listed if name.startswith(stem))
    return queues(broker, stem)


@pytest.mark.own_broker("lists its queues")
@pytest.mark.parametrize("peer", MAKERS, ids="-".join, indirect=True)
def test_doctor_makes_no_queue_unless_asked(peer: tuple[Broker, str], unique_queue: str) -> None:
    """Neither the queue nor its dead-letter queue is made without --create; nothing fails, and both lines say so."""
    broker, protocol = peer
    uri = broker.uri(protocol=protocol, redelivery__deadLetterDestination=f"{unique_queue}.dead", **PATIENT)
    found = Diagnosis(uri, unique_queue, create=False)
    assert (found.code, names(broker, unique_queue)) == (0, []), found.findings
    assert "--create" in found.text(f"queue://{unique_queue}", "note") or protocol == "stomp"
    asked = Diagnosis(uri, unique_queue)
    assert asked.code == 0, asked.findings
    # RabbitMQ over STOMP is not asked for the queue.
    made = {f"{unique_queue}.dead"} if isinstance(broker, RabbitMQ) else set[str]()
    assert made <= set(names(broker, unique_queue))


@pytest.mark.own_broker("lists its queues")
@pytest.mark.parametrize("peer", [("rabbitmq4", "amqp")], ids="-".join, indirect=True)
def test_the_advice_for_rabbitmq_4_works(peer: tuple[Broker, str], unique_queue: str) -> None:
    """With the options that doctor names the consumer starts, and both of its queues are quorum queues."""
    broker, protocol = peer
    assert isinstance(broker, RabbitMQ)
    dead = f"{unique_queue}.dead"
    uri = broker.uri(protocol=protocol, redelivery__deadLetterDestination=dead, **PATIENT)
    text = Diagnosis(uri, unique_queue, create=False).text(f"queue://{unique_queue}", "note")
    (options,) = re.findall(r"made with (\S+)$", text)
    with redelivery.connect(f"{uri}&{options}") as connection:
        connection.consumer(unique_queue)
    listed = dict(line.split("\t") for line in broker.control("list_queues", "name", "type").splitlines()[2:])
    assert {name: kind for name, kind in listed.items() if name.startswith(unique_queue)} == {
        unique_queue: "quorum",
        dead: "quorum",
    }
    assert "FAIL" not in Diagnosis(f"{uri}&{options}", unique_queue, create=False).levels

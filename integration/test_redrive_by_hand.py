"""An operator redrives a dead letter by a Java client or the broker's own tools, and it is poison again."""

from __future__ import annotations

import uuid
from functools import partial
from typing import TYPE_CHECKING

import pytest

import redelivery
from integration.eventually import eventually
from integration.peers import PAIRS
from integration.raw_amqp import RawAmqp
from integration.work import Running, Work

if TYPE_CHECKING:
    from collections.abc import Callable

    from integration.brokers import Broker
    from integration.java_client import JavaClient

pytestmark = [
    pytest.mark.ci("redrives by other tools"),
    pytest.mark.own_broker("reads its dead-letter queue"),
]

DUPLICATE_ID = "_AMQ_DUPL_ID"  # Artemis confirms and drops a second message with an id that it knows
POLICIES = redelivery.RedeliveryPolicyMap(
    default=redelivery.RedeliveryPolicy(
        maximum_redeliveries=1, initial_redelivery_delay=0.02, redelivery_delay=0.02
    )
)
TIMES = 3  # poison, redriven, poison, redriven, poison


def poisoned_again_and_again(
    broker: Broker, protocol: str, java: JavaClient, queue: str, put_back: Callable[[], int]
) -> None:
    """A redriven message is handled again, and dead-lettered again, whatever id its producer gave it."""
    dead_letters, run = broker.dead_letter_queue, uuid.uuid4().hex
    java.drain(dead_letters)  # what other tests have left there
    ids = {DUPLICATE_ID: f"application-{run}"} if broker.name == "artemis" else {}
    java.send(queue, b"bad", properties={"run": run, "key": "bad", **ids})
    work = Work()
    with redelivery.connect(broker.uri(protocol=protocol), policies=POLICIES) as connection:
        connection.listen(queue, work)
        with Running(connection):
            for times in range(1, TIMES + 1):
                eventually(partial(poisoned, connection, times), 60, message=f"poison {times}")
                if times < TIMES:
                    assert put_back() == 1, f"it is a dead letter after poison {times}"
    assert [attempt.redelivery_count for attempt in work.attempts["bad"]] == [0, 1] * TIMES
    (dead,) = java.drain(dead_letters, timeout=5.0, limit=1)
    assert dead.properties["run"] == run
    assert dead.properties.get(DUPLICATE_ID) != ids.get(DUPLICATE_ID, ""), "an application's id is not copied"
    assert java.drain(dead_letters) == [], "one dead letter, not one each time"
    assert java.drain(queue) == [], "the source queue ends empty"


def poisoned(connection: redelivery.Connection, times: int) -> bool:
    """True if this number of dead letters is confirmed."""
    return connection.report().poisoned == times


# Not for RabbitMQ's STOMP consumers, which get a JMS client's bodies and properties in AMQP's encoding.
JMS_PAIRS = [pair for pair in PAIRS if pair != ("rabbitmq", "stomp")]


@pytest.mark.parametrize("peer", JMS_PAIRS, ids="-".join, indirect=True)
def test_a_dead_letter_put_back_by_a_java_client(
    peer: tuple[Broker, str], java_client: Callable[[Broker, str | None], JavaClient], unique_queue: str
) -> None:
    """A dead letter that a Java client moves back, with all its properties, is handled and dead-lettered again."""
    broker, protocol = peer
    java = java_client(broker, "qpid" if protocol == "amqp" else None)

    def put_back() -> int:
        return java.move(broker.dead_letter_queue, unique_queue)

    poisoned_again_and_again(broker, protocol, java, unique_queue, put_back)


@pytest.mark.parametrize("protocol", ["stomp", "amqp"])
def test_a_dead_letter_put_back_by_artemis(
    artemis: Broker,
    java_client: Callable[[Broker, str | None], JavaClient],
    unique_queue: str,
    protocol: str,
) -> None:
    """Artemis' `retryMessages` finds the origin by the properties of this library's copy."""
    java = java_client(artemis, "qpid" if protocol == "amqp" else None)
    poisoned_again_and_again(artemis, protocol, java, unique_queue, lambda: retried(artemis))


def retried(artemis: Broker) -> int:
    """Run the broker's redrive of its whole dead-letter queue; return the number of messages."""
    with RawAmqp(artemis) as amqp:
        answer = amqp.manage(f"queue.{artemis.dead_letter_queue}", "retryMessages")
    assert isinstance(answer, int), answer
    return answer

"""Redelivery by the broker on real brokers: killed clients, and brokers that do not delay messages."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from tests.matrix import some

import redelivery
from integration.availability import own_settings
from integration.brokers import ActiveMQ
from integration.eventually import eventually
from integration.killed_client import POINTS
from integration.peers import PAIRS
from integration.test_client_killed import Kills

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from integration.brokers import Broker
    from integration.java_client import JavaClient

pytestmark = pytest.mark.ci("delayed copies and kills")

# Points at which a client is killed; the last one is random.
CHOSEN = some(POINTS, POINTS[:2], ci=())
ABLE = [pair for pair in PAIRS if pair != ("rabbitmq", "amqp")]
# A copy and its original are one transaction, or the broker drops a second copy.
ONCE = {("artemis", "amqp"), ("artemis", "stomp"), ("brokerj", "amqp")}


@pytest.mark.parametrize("peer", ABLE, ids="-".join, indirect=True)
def test_nothing_is_lost_when_the_client_is_killed_over_a_delayed_copy(
    peer: tuple[Broker, str],
    java_client: Callable[[Broker, str | None], JavaClient],
    unique_queue: str,
    tmp_path: Path,
) -> None:
    """Each message is handled or is a dead letter; each kill may double it if the broker allows a second copy."""
    broker, protocol = peer
    client = "qpid" if protocol == "amqp" else "stomp" if broker.name == "rabbitmq" else None
    java = java_client(broker, client)
    dead_letters = f"{unique_queue}.dead"
    uri = broker.uri(
        protocol=protocol,
        redelivery__scheduler="broker",
        redelivery__deadLetterDestination=dead_letters,
        redelivery__connectTimeout=60_000,  # for a busy machine
    )
    kills = Kills(uri, java, unique_queue, dead_letters)
    rounds = [kills.round(number, tmp_path / f"{number}.log") for number in range(len(CHOSEN))]
    kills.finish(3.0, rounds[-1])  # second copies, which arrive at their due time
    dead = sum((one.dead for one in rounds), Counter[str]())
    twice = dead.total() - len(dead)
    print(f"\n{broker.name} over {protocol}: {len(rounds)} kills, {len(dead)} dead letters, {twice} twice")
    assert java.drain(unique_queue) == [], "the source queue ends empty"
    assert all(body.startswith("bad") for body in dead), "only poison is dead-lettered"
    for number, one in enumerate(rounds):
        # On a slow machine its second copies may still exist at the next kill.
        most = 1 if (broker.name, protocol) in ONCE else 2 ** (len(rounds) - number)
        assert all(dead[body] <= most for body in one.dead if body.startswith(f"bad-{number}-")), dead


@pytest.mark.parametrize("protocol", ["stomp", "amqp"])
def test_classic_without_its_scheduler_is_refused(protocol: str, unique_queue: str) -> None:
    """A consumer on a Classic without scheduler does not start, and the error names the missing setting."""
    with own_settings(ActiveMQ, scheduler=False) as broker:
        plain = broker.uri(protocol=protocol)
        with redelivery.connect(broker.uri(protocol=protocol, redelivery__scheduler="broker")) as connection:
            connection.send(unique_queue, "waits")
            with pytest.raises(redelivery.AdapterError, match="schedulerSupport=true"):
                connection.consumer(unique_queue)
        with redelivery.connect(plain) as connection:
            message = connection.consumer(unique_queue).receive(timeout=60)
            assert message is not None
            assert (message.text, message.redelivery_count, message.accept()) == ("waits", 0, True)


@pytest.mark.parametrize("protocol", ["stomp", "amqp"])
def test_delays_do_not_prolong_a_message(activemq: Broker, protocol: str, unique_queue: str) -> None:
    """A message that Classic has delayed three times, each time a little late, expires when it would have."""
    policy = redelivery.RedeliveryPolicy(
        maximum_redeliveries=5, initial_redelivery_delay=1.0, redelivery_delay=1.0
    )
    uri = activemq.uri(protocol=protocol, redelivery__scheduler="broker")
    with redelivery.connect(uri, policies=redelivery.RedeliveryPolicyMap(default=policy)) as connection:
        consumer = connection.consumer(unique_queue)
        connection.send(unique_queue, "x", ttl=60.0)
        seen: list[float | None] = []
        for _ in range(4):
            message = consumer.receive(timeout=30)
            assert message is not None
            seen.append(message._delivery.expires_at)
            message.fail("no")
    assert None not in seen
    assert max(seen) - min(seen) < 0.005, seen  # type: ignore[type-var,operator]  # none is None


def test_a_queue_of_brokerj_that_holds_nothing_is_refused(brokerj: Broker, unique_queue: str) -> None:
    """A queue of Broker-J that delays no message is refused, after a probe with a queue of the same name pattern."""
    with redelivery.connect(brokerj.uri(protocol="amqp", redelivery__scheduler="broker")) as connection:
        with pytest.raises(redelivery.AdapterError, match="holdOnPublishEnabled"):
            connection.consumer(f"nohold.{unique_queue}")
        connection.consumer(unique_queue)


@pytest.mark.own_broker("kills it")
@pytest.mark.parametrize("peer", ABLE, ids="-".join, indirect=True)
def test_a_copy_outlives_the_broker(peer: tuple[Broker, str], unique_queue: str) -> None:
    """A confirmed delayed copy survives a kill of the broker, and is delivered with its count."""
    broker, protocol = peer
    policies = redelivery.RedeliveryPolicyMap(
        default=redelivery.RedeliveryPolicy(maximum_redeliveries=1, initial_redelivery_delay=8.0)
    )
    uri = broker.uri(protocol=protocol, redelivery__scheduler="broker", redelivery__connectTimeout=60_000)
    with redelivery.connect(uri, policies=policies) as connection:
        consumer = connection.consumer(unique_queue)
        connection.send(unique_queue, "x", persistent=True)
        message = consumer.receive(timeout=30)
        assert message is not None
        message.fail("no")
        dispatcher = consumer._dispatcher
        eventually(lambda: not dispatcher.engine.load.unconfirmed, 30, message="the broker has the copy")
        broker.kill()
        broker.start()
        again = consumer.receive(timeout=90)
        assert again is not None
        assert (again.text, again.redelivery_count) == ("x", 1)
        again.accept()

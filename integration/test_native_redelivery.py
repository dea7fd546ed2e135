"""RabbitMQ 4.3 delays messages of quorum queues itself: on time, counted, over kills of the node and of consumers.

REDELIVERY_NODE_KILLS: number of kills of the node (3, or 50 in the full run).
"""

from __future__ import annotations

import itertools
import random
import time
from typing import TYPE_CHECKING

import pytest
from tests.tiers import amount

import redelivery
from integration.availability import own_settings
from integration.brokers import RabbitMQ4
from integration.eventually import SLACK, eventually
from integration.raw_amqp import RawAmqp

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.ci("a node that is killed again and again")

# Broker and protocol of these tests.
PAIR = ("rabbitmq4", "amqp")
KILLS = amount("REDELIVERY_NODE_KILLS", quick=2, ci=3, full=50)
WAITING = 100
# Seconds: delay of the policy; and most difference between the clocks of a client and a node on one machine.
DELAY, EARLY = 2.0, 0.05


@pytest.fixture
def broker() -> Iterator[RabbitMQ4]:
    """Return a node of the newest version, which a test may kill."""
    with own_settings(RabbitMQ4) as node:
        yield node


@pytest.fixture
def queue(broker: RabbitMQ4, unique_queue: str) -> str:
    """Return a quorum queue."""
    with RawAmqp(broker) as raw:
        raw.declare(unique_queue)
    return unique_queue


def uri_of(broker: RabbitMQ4, redeliveries: int, delay: float = DELAY) -> str:
    """Return a URI with which the broker delays redeliveries."""
    policy = "jms.redeliveryPolicy."
    options = {
        f"{policy}maximumRedeliveries": redeliveries,
        f"{policy}initialRedeliveryDelay": int(delay * 1000),
        f"{policy}redeliveryDelay": int(delay * 1000),
        "redelivery.scheduler": "broker",
    }
    plain = broker.uri(protocol="amqp")
    return plain + "".join(f"&{name}={value}" for name, value in options.items())


class Attempts:
    """Fails each delivery, and records its count and its time."""

    def __init__(self) -> None:
        """Begin without deliveries."""
        self.counts: dict[str, list[int]] = {}
        self.times: dict[str, list[float]] = {}

    def __call__(self, message: redelivery.Message) -> None:
        """Fail."""
        self.times.setdefault(message.text, []).append(time.time())
        self.counts.setdefault(message.text, []).append(message.delivery_count)
        raise ValueError("no stock")

    def dispatched(self, times: int, messages: int) -> bool:
        """True if this number of messages was delivered this number of times."""
        return sum(len(each) >= times for each in self.counts.values()) >= messages


def dead_letters(broker: RabbitMQ4) -> dict[str, tuple[int | None, str]]:
    """Return the messages of the dead-letter queue: deliveries and cause by text."""
    with redelivery.dead_letters(broker.uri(protocol="amqp"), take=True, idle=2.0) as tools:
        return {letter.body.decode(): (letter.redelivery_count, letter.cause) for letter in tools.list()}


def test_each_redelivery_comes_on_time_and_to_whoever_is_there(broker: RabbitMQ4, queue: str) -> None:
    """A message is delivered three times, on a new connection each, and is then a dead letter with count and cause."""
    with redelivery.connect(broker.uri(protocol="amqp")) as sender:
        sender.send(queue, "bad")
    late, due = [], 0.0
    for count in (1, 2, 3):
        with redelivery.connect(uri_of(broker, 2)) as connection, connection.consumer(queue) as consumer:
            message = consumer.receive(timeout=DELAY + 10.0)
            assert message is not None
            if due:
                late.append(time.time() - due)
            assert message.delivery_count == count
            assert consumer.receive(timeout=0.2) is None
            due = time.time() + DELAY
            message.fail("no stock")
    print(f"\nlate by {', '.join(f'{each * 1000:.0f} ms' for each in late)}")
    assert all(-EARLY <= each <= SLACK for each in late)
    assert dead_letters(broker) == {"bad": (3, "no stock")}


def test_a_classic_queue_is_refused_in_one_sentence(broker: RabbitMQ4, unique_queue: str) -> None:
    """A classic queue is refused: it would redeliver at once, again and again."""
    with RawAmqp(broker) as raw:
        raw.declare(unique_queue, {})
    with (
        redelivery.connect(uri_of(broker, 2)) as connection,
        pytest.raises(
            redelivery.AdapterError, match="is a classic queue, in which RabbitMQ holds no message back"
        ),
    ):
        connection.consumer(unique_queue)


def test_the_node_is_killed_while_messages_wait(broker: RabbitMQ4, queue: str) -> None:
    """No delayed message is lost or early over kills of the node, and each is counted once for each failure."""
    dice, attempts = random.Random(KILLS), Attempts()
    names = [f"order {number}" for number in range(WAITING)]
    with redelivery.connect(broker.uri(protocol="amqp")) as sender:
        for name in names:
            sender.send(queue, name)
    connection = redelivery.connect(uri_of(broker, KILLS))
    connection.listen(queue, attempts, workers=4)
    with connection.running():
        for kill in range(1, KILLS + 1):
            eventually(lambda: attempts.dispatched(kill, WAITING), 120.0, 0.02, "all have failed so often")  # noqa: B023
            # The node must have read the last frames: the delay is to survive the kill.
            time.sleep(0.2 + dice.random() * (DELAY - 0.4))
            broker.kill()
            broker.start()
        eventually(
            lambda: attempts.dispatched(KILLS + 1, WAITING), 120.0, 0.05, "all have failed for the last time"
        )
        found: dict[str, tuple[int | None, str]] = {}
        eventually(
            lambda: found.update(dead_letters(broker)) or len(found) == WAITING, 60.0, 1.0, "all are dead"
        )
    gaps = [after - before for each in attempts.times.values() for before, after in itertools.pairwise(each)]
    early = sum(gap < DELAY - EARLY for gap in gaps)
    print(
        f"\n{KILLS} kills, {len(gaps)} redeliveries, {early} early: after {min(gaps):.3f} to {max(gaps):.1f} s"
    )
    assert set(attempts.counts) == set(names)
    assert early == 0
    assert all(counts == list(range(1, KILLS + 2)) for counts in attempts.counts.values())
    assert set(found.values()) == {(KILLS + 1, "ValueError: no stock")}

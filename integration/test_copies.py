"""Copies have what docs/measured/copies.md says: all that came, but for what a broker does not deliver or refuses."""

from __future__ import annotations

import re
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

import redelivery
from integration.brokers import RabbitMQ
from integration.eventually import eventually
from integration.measure_copies import PAGE, measured, recorded
from integration.peers import PAIRS, take
from integration.producers import PIKA, Pika, Producer, Proton
from integration.raw_stomp import RawStomp

if TYPE_CHECKING:
    from collections.abc import Callable

    from integration.brokers import Broker

RABBITS = [(name, protocol) for name in ("rabbitmq", "rabbitmq4") for protocol in ("stomp", "amqp")]
ARGUMENTS = ("queueArguments", "deadLetterArguments")
ALL = [*PAIRS, *(pair for pair in RABBITS if pair not in PAIRS)]


def minor(line: str) -> str:
    """Return a line of the table without the third part of its broker's version, which a fix of the broker changes."""
    return re.sub(r"(\d+\.\d+)\.\d+(?=,)", r"\1", line, count=1)


def check(peer: tuple[Broker, str], chosen: Callable[[Producer], bool]) -> None:
    """Measure copies, and compare them with the page."""
    known = {(minor(where), producer): minor(line) for (where, producer), line in recorded().items()}
    for row in measured(*peer, chosen):
        measure = f"python -m integration.measure_copies {peer[0].name} --write"
        assert (minor(row.where), row.producer) in known, f"{PAGE} has no row of {row.where}: {measure}"
        assert minor(row.line()) == known[minor(row.where), row.producer]


@pytest.mark.ci("copies of all kinds: 10 s")
@pytest.mark.skipif(not PIKA, reason="pika is not installed (the extra test-all)")
@pytest.mark.parametrize("peer", RABBITS, ids="-".join, indirect=True)
def test_copies_of_an_amqp_0_9_1_producers_message(peer: tuple[Broker, str]) -> None:
    """RabbitMQ: each property and type of header of AMQP 0.9.1 is on copies, or the page says that it is not."""
    check(peer, lambda producer: isinstance(producer, Pika))


@pytest.mark.ci("copies of all kinds: 10 s")
@pytest.mark.parametrize("peer", ALL, ids="-".join, indirect=True)
def test_copies_of_an_amqp_1_0_producers_message(peer: tuple[Broker, str]) -> None:
    """Each field, property and annotation of AMQP 1.0 is on copies, or the page says that it is not."""
    check(peer, lambda producer: isinstance(producer, Proton) and "simple" in producer.name)


@pytest.mark.full("copies of all kinds, from each producer: a minute")
@pytest.mark.parametrize("peer", ALL, ids="-".join, indirect=True)
def test_copies_of_every_producers_message(peer: tuple[Broker, str]) -> None:
    """Handlers, dead letters, redriven messages and delayed copies have all that the page does not name as missing."""
    check(peer, lambda producer: not isinstance(producer, Pika))


@pytest.mark.ci("a second user: 5 s")
@pytest.mark.own_broker("adds a user")
@pytest.mark.parametrize("peer", RABBITS, ids="-".join, indirect=True)
def test_a_message_of_another_user_is_dead_lettered(peer: tuple[Broker, str], unique_queue: str) -> None:
    """RabbitMQ refuses a copy with another user's `user-id`: the dead letter is without it, and is there."""
    broker, protocol = peer
    assert isinstance(broker, RabbitMQ)
    user = f"alice{unique_queue[-6:]}"
    broker.control("add_user", user, broker.password)
    broker.control("set_permissions", user, ".*", ".*", ".*")
    told = {"user-id": user, "persistent": "true", "app-id": "shop"}
    with closing(RawStomp(broker).connect(user)) as raw:
        raw.send_frame(unique_queue, b"x", told)
    kind = {"x-queue-type": "quorum"} if broker.queue_arguments else {}
    options = {
        f"redelivery__{name}": ",".join(f"{k}:{v}" for k, v in kind.items()) for name in ARGUMENTS if kind
    }
    dead = f"{unique_queue}.dead"
    uri = broker.uri(protocol=protocol, redelivery__deadLetterDestination=dead, **options)  # type: ignore[arg-type]
    with redelivery.connect(uri) as connection:
        message = connection.consumer(unique_queue).receive(timeout=60)
        assert message is not None
        message.poison("x")
        eventually(lambda: connection.report().poisoned)
    assert take(broker, protocol, dead) == b"x"

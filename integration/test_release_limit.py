"""Quorum dead-letter queues of RabbitMQ 4 over AMQP: looks lose no message, or are refused before they take one."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import redelivery
from integration.peers import RABBITMQ_4
from integration.raw_amqp import RawAmqp
from integration.test_dead_letters import NO_RETRY, poison

if TYPE_CHECKING:
    from integration.brokers import Broker

pytestmark = [
    pytest.mark.ci("looks at quorum queues"),
    pytest.mark.own_broker("reads its dead-letter queue"),
    pytest.mark.parametrize("peer", [(RABBITMQ_4, "amqp")], ids="-".join, indirect=True),
]

QUORUM = {"x-queue-type": "quorum"}
OPTIONS = "redelivery.queueArguments=x-queue-type:quorum&redelivery.deadLetterArguments=x-queue-type:quorum"
# More than the default limit of a quorum queue.
LOOKS = 23


@pytest.fixture
def node(peer: tuple[Broker, str]) -> Broker:
    """A RabbitMQ 4."""
    return peer[0]


def uri_of(broker: Broker, dead: str) -> str:
    """Return the URI of a consumer with quorum queues."""
    uri = broker.uri(protocol="amqp")
    return f"{uri}{'&' if '?' in uri else '?'}{OPTIONS}&redelivery.deadLetterDestination={dead}"


def counts(broker: Broker) -> bool:
    """Return True if this version counts a look against the limit of a queue."""
    return broker.release < (4, 3)


def test_our_dead_letter_queue_can_be_looked_at_for_ever(node: Broker, unique_queue: str) -> None:
    """A quorum dead-letter queue that this library has declared shows its messages at each look."""
    uri = uri_of(node, f"{unique_queue}.dead")
    with redelivery.connect(uri, policies=NO_RETRY) as connection:
        poison(connection, unique_queue, 3)
    for _ in range(LOOKS):
        # On 4.0.5 a session that begins as another one ends may have no answer: one look for each connection.
        with redelivery.dead_letters(uri, take=True, idle=0.2) as dead:
            assert len(list(dead)) == 3
    with redelivery.dead_letters(uri, idle=0.2) as dead:
        assert dead.purge(cause="NoSuch").skipped == 3


def test_a_queue_with_a_limit_is_not_looked_at_unasked(node: Broker, unique_queue: str) -> None:
    """A dead-letter queue that was declared with the default limit is used; a look is refused, and counts nothing."""
    dead_queue = f"{unique_queue}.dead"
    uri = uri_of(node, dead_queue)
    with RawAmqp(node) as raw:
        raw.declare(dead_queue, QUORUM)
    with redelivery.connect(uri, policies=NO_RETRY) as connection:
        poison(connection, unique_queue, 3)
    for _ in range(LOOKS):
        with redelivery.dead_letters(uri, take=True, idle=0.2) as dead:
            if not counts(node):
                assert len(list(dead)) == 3
                continue
            with pytest.raises(redelivery.ConfigurationError, match="drops a message after 20 of them"):
                list(dead)
            with pytest.raises(redelivery.ConfigurationError, match="despite_limit=True"):
                dead.purge(cause="KeyError")
    with redelivery.dead_letters(uri, take=True, idle=0.5, despite_limit=True) as dead:
        assert len(list(dead)) == 3
        assert dead.redrive(cause="ValueError").redriven == 1
    # Nothing stays: no permission is needed.
    with redelivery.dead_letters(uri, idle=0.5) as dead:
        assert dead.redrive().redriven == 2


def test_a_classic_queue_is_looked_at(node: Broker, unique_queue: str) -> None:
    """A classic dead-letter queue has no limit."""
    dead_queue = f"{unique_queue}.dead"
    with RawAmqp(node) as raw:
        raw.declare(dead_queue, {"x-queue-type": "classic"})
        raw.send(dead_queue)
    with redelivery.dead_letters(node.uri(protocol="amqp"), dead_queue, take=True, idle=0.5) as dead:
        assert len(list(dead)) == 1


def test_the_doctor_looks_at_the_dead_letter_queue(node: Broker, unique_queue: str) -> None:
    """The doctor warns of a dead-letter queue with a limit, and not of one that this library declares before 4.3."""
    with RawAmqp(node) as raw:
        raw.declare(f"{unique_queue}.old", QUORUM)

    def warned(dead: str) -> list[str]:
        command = [
            sys.executable,
            "-m",
            "redelivery.cli",
            "doctor",
            uri_of(node, dead),
            unique_queue,
            "--create",
        ]
        done = subprocess.run(
            [*command, "--output", "json"], check=False, capture_output=True, text=True, timeout=120,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        findings = json.loads(done.stdout)["findings"]
        return [one["text"] for one in findings if (one["level"], one["subject"]) == ("warn", "dead letters")]

    (text,) = warned(f"{unique_queue}.old")
    what = "lost connections or releases" if counts(node) else "lost connections"
    assert f"{unique_queue}.old: unless a policy" in text
    assert f"dropped after 20 {what} (x-delivery-limit)" in text
    assert "redelivery.deadLetterArguments=x-queue-type:quorum,x-delivery-limit:-1" in text
    assert bool(warned(f"{unique_queue}.new")) != counts(node)

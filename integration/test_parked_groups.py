"""Parked messages of one group block no other message."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

import redelivery
from integration.eventually import eventually
from integration.peers import PAIRS
from integration.work import POLICY, Running

if TYPE_CHECKING:
    from integration.brokers import Broker
    from integration.conftest import Session

WORK = 0.005  # seconds of each message
LONG = redelivery.RedeliveryPolicyMap(default=POLICY(initial_redelivery_delay=600.0))

# Pairs with too small a default credit: Classic binds groups to a window over STOMP (docs/several-processes.md).
NAMED = {"activemq-stomp": 1000}

pytestmark = [
    pytest.mark.ci("groups with parked messages"),
    pytest.mark.parametrize(
        "pair", [one for one in PAIRS if one[0] not in ("brokerj", "rabbitmq")], ids="-".join, indirect=True
    ),
]


@pytest.fixture
def pair(request: pytest.FixtureRequest, session: Session) -> tuple[Broker, str]:
    """Return a running broker, and the protocol."""
    name, protocol = request.param
    return session.broker(name), protocol


@pytest.mark.parametrize("failing", [12, 100])
def test_the_other_groups_flow_beside_parked_messages_of_one(
    pair: tuple[Broker, str], unique_queue: str, failing: int
) -> None:
    """Messages of other groups flow while one group is parked, after each group was bound to a subscription."""
    broker, protocol = pair
    with redelivery.connect(broker.uri(protocol=protocol)) as sender:
        for number in range(20):
            sender.send(unique_queue, b"first", group=f"g{number % 5}")
        for _ in range(failing):
            sender.send(unique_queue, b"bad", group="g0")
        for number in range(30):
            sender.send(unique_queue, b"last", group=f"g{number % 4 + 1}")
        for number in range(10):
            sender.send(unique_queue, b"new", group=f"n{number}")
            sender.send(unique_queue, b"free")
    handled: list[bytes] = []

    def handle(message: redelivery.Message) -> None:
        time.sleep(WORK)
        if message.body == b"bad":
            raise ValueError(message.body)
        handled.append(message.body)

    credit = NAMED.get(f"{broker.name}-{protocol}", "auto")
    uri = broker.uri(protocol=protocol, redelivery__credit=credit)
    connection = redelivery.connect(uri, policies=LONG)
    with connection:
        connection.listen(unique_queue, handle, workers=1)
        with Running(connection):
            eventually(lambda: len(handled) == 70, message="all others are handled")

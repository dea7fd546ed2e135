"""A consumer that releases far more messages than it may park: it stops on no broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import redelivery
from integration.eventually import PATIENCE
from integration.peers import PAIRS, fill

if TYPE_CHECKING:
    from integration.brokers import Broker
    from integration.conftest import Session

pytestmark = pytest.mark.ci("releases on each pair")

MESSAGES = 20


@pytest.fixture(params=PAIRS, ids="-".join)
def pair(request: pytest.FixtureRequest, session: Session) -> tuple[Broker, str]:
    """Return a running broker, and the protocol."""
    name, protocol = request.param
    return session.broker(name), protocol


def test_a_consumer_that_releases_goes_on(pair: tuple[Broker, str], unique_queue: str) -> None:
    """A consumer that releases continues: over STOMP on Classic and Artemis, its first released messages return."""
    broker, protocol = pair
    fill(broker, protocol, unique_queue, [f"m{number}".encode() for number in range(MESSAGES)])
    uri = broker.uri(protocol=protocol, redelivery__credit=4, redelivery__maxParked=4)
    with redelivery.connect(uri) as connection:
        with connection.consumer(unique_queue) as consumer:
            for number in range(3 * MESSAGES):
                message = consumer.receive(timeout=PATIENCE)
                assert message is not None, f"no message arrived after {number} that were released"
                assert message.release()
            done: list[str] = []
            # If they are parked, the last ones stay parked until the consumer closes.
            while len(done) + consumer.parked < MESSAGES:
                done.append(accepted(consumer))
        print(f"{broker.name} over {protocol}: {MESSAGES - len(done)} come to the next consumer")
        with connection.consumer(unique_queue) as consumer:
            done += [accepted(consumer) for _ in range(MESSAGES - len(done))]
    assert len(set(done)) == MESSAGES


def accepted(consumer: redelivery.Consumer) -> str:
    """Take and accept a message."""
    message = consumer.receive(timeout=PATIENCE)
    assert message is not None
    message.accept()
    return message.text

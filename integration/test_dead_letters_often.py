"""Browses and redrives without a pause, over one connection and over several: each finds all dead letters."""

from __future__ import annotations

import logging
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from tests.tiers import chosen

import redelivery
from integration.dead_letter_fill import CAUSES, fill, with_cause
from integration.peers import PAIRS
from integration.test_dead_letters import BROWSE, received

if TYPE_CHECKING:
    from integration.brokers import Broker

pytestmark = pytest.mark.ci("looks without a pause")

# Browses without a pause in each of eight threads: many show a behaviour of RabbitMQ that occurs once in 2,000 times.
LOOKS = 20
MANY = 3500  # RabbitMQ needs a noticeable time to release this number
FEW = 350  # Classic shows no more than 400


@pytest.mark.parametrize("peer", PAIRS, ids="-".join, indirect=True)
def test_one_after_the_other(
    peer: tuple[Broker, str], unique_queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Each run counts all dead letters that are left, redrives the matched ones once, and keeps its connection."""
    broker, protocol = peer
    many = (broker.name, protocol) == ("rabbitmq", "amqp") or (
        chosen() == "full" and broker.name != "activemq"
    )
    count = MANY if many else FEW
    dead, uri = f"{unique_queue}.dead", broker.uri(protocol=protocol)
    fill(broker, protocol, dead, unique_queue, count)
    take, some = (broker.name, protocol) not in BROWSE, len(with_cause(CAUSES[1], count))
    with caplog.at_level(logging.WARNING, logger="redelivery"):
        with redelivery.dead_letters(uri, dead, take=take) as tools:
            assert sum(group.count for group in tools.summary()) == count
            done = tools.redrive(cause=CAUSES[1])
            # First this: a copy that was in flight at the loss of a connection is made again.
            assert not caplog.messages, "no connection was lost"
            assert (done.redriven, done.complete) == (some, True)
            assert sum(group.count for group in tools.summary()) == count - some
        with redelivery.dead_letters(uri, dead, take=take) as tools:
            assert sum(group.count for group in tools.summary()) == count - some
        with redelivery.dead_letters(uri, dead, take=take) as tools:
            done = tools.redrive()
            assert not caplog.messages, "no connection was lost"
            assert (done.redriven, done.complete) == (count - some, True)
            assert tools.summary() == []
    assert not caplog.messages, "no connection was lost"
    with redelivery.connect(uri) as connection:
        back = Counter(m.headers["redeliveryOriginalId"] for m in received(connection, unique_queue, count))
    assert (len(back), back.total()) == (count, count)


@pytest.mark.parametrize("peer", [("rabbitmq", "amqp")], ids="-".join, indirect=True)
def test_looks_without_a_pause(
    peer: tuple[Broker, str], unique_queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Each browse shows all dead letters, though RabbitMQ under load sometimes does not answer the end of a session."""
    broker, protocol = peer
    uri = broker.uri(protocol=protocol)

    def look(queue: str) -> int:
        """Browse a queue of its own often; return how often it took seconds."""
        fill(broker, protocol, queue, unique_queue, 3)
        late = 0
        with redelivery.dead_letters(uri, queue, take=True, idle=0.1) as tools:
            for _ in range(LOOKS):
                began = time.monotonic()
                assert len(list(tools)) == 3
                late += time.monotonic() - began > 3
        return late

    with caplog.at_level(logging.WARNING, logger="redelivery"), ThreadPoolExecutor(8) as threads:
        late = sum(threads.map(look, [f"{unique_queue}.{number}" for number in range(8)]))
    assert not caplog.messages, "no connection was lost"
    print(f"{late} of {8 * LOOKS} looks took more than 3 s")

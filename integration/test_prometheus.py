"""Metrics with a real Artemis over both protocols: scraped while the connection is cut and cannot be restored."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry
from tests.prometheus.scrapes import Scrape, scrape

import redelivery
from integration.eventually import eventually
from integration.proxy import LinkProxy
from integration.work import Running, at_rest
from redelivery.prometheus import Metrics

if TYPE_CHECKING:
    from collections.abc import Callable

    from integration.brokers import Broker
    from integration.java_client import JavaClient

MESSAGES = 200
OPTIONS: Any = {
    "jms__redeliveryPolicy__initialRedeliveryDelay": 100,
    "jms__redeliveryPolicy__maximumRedeliveries": 1,
}


class Handler:
    """Fails always for every tenth message, and once for the message after it."""

    def __init__(self) -> None:
        self._attempts: Counter[int] = Counter()
        self._lock = threading.Lock()

    def __call__(self, message: redelivery.Message) -> None:
        """Handle one delivery."""
        number = int(message.text)
        with self._lock:
            self._attempts[number] += 1
        if number % 10 == 0:
            raise ValueError("bad")
        if number % 10 == 1 and message.redelivery_count == 0:
            raise LookupError("not yet")

    def has_seen_all(self) -> bool:
        """True if each message was delivered, and every tenth one up to its limit."""
        with self._lock:
            return all(self._attempts[number] > (number % 10 == 0) for number in range(2 * MESSAGES))


def total(found: Scrape, name: str) -> float:
    """Return the sum of a metric over all connections and destinations."""
    return sum(value for (each, _), value in found.samples.items() if each == name)


@pytest.mark.own_broker("reads its dead-letter queue")
@pytest.mark.parametrize("protocol", ["stomp", "amqp"])
def test_an_outage_is_scraped(
    artemis: Broker, java_client: Callable[[Broker], JavaClient], unique_queue: str, protocol: str
) -> None:
    """The connection metric is 0 during an outage, the reconnect is counted, and the counts equal the report.

    Neither counts a dead letter whose confirmation was lost in the cut; it is in the dead-letter queue.
    """
    registry, handler = CollectorRegistry(), Handler()
    with LinkProxy(artemis.ports[protocol]) as proxy:
        uri = artemis.uri(protocol=protocol, port=proxy.port, **OPTIONS)
        with redelivery.connect(uri, observers=[Metrics(registry)]) as connection:
            connection.listen(unique_queue, handler, workers=2)
            with Running(connection):
                send(connection, unique_queue, 0)
                eventually(lambda: total(scrape(registry), "redelivery_outcomes_total") >= MESSAGES / 2)
                proxy.refuse()
                proxy.cut()
                seen(registry, lambda found: total(found, "redelivery_connected") == 0)
                proxy.accept()
                seen(registry, lambda found: total(found, "redelivery_connected") == 1)
                send(connection, unique_queue, MESSAGES)
                eventually(handler.has_seen_all)
                eventually(lambda: at_rest(connection))
                eventually(lambda: counts_equal(scrape(registry), connection.report()))
            check(scrape(registry), connection.report())
    after = scrape(registry)
    assert after.by("redelivery_connected", "connection") == {}
    assert after.by("redelivery_outcomes_total", "outcome")["poisoned"] >= MESSAGES / 10, "all after the cut"
    tens, java = list(range(0, 2 * MESSAGES, 10)), java_client(artemis)
    selector = f"sent_to = '{unique_queue}'"
    dead = java.drain(artemis.dead_letter_queue, selector=selector, expected=len(tens))
    assert sorted(int(m.body or b"") for m in dead) == tens


def send(connection: redelivery.Connection, queue: str, first: int) -> None:
    """Send numbered messages."""
    for number in range(first, first + MESSAGES):
        connection.send(queue, str(number), headers={"sent_to": queue})


def seen(registry: CollectorRegistry, happened: Callable[[Scrape], bool]) -> None:
    """Scrape until `happened` is true."""
    eventually(lambda: happened(scrape(registry)))


def counts_equal(found: Scrape, report: redelivery.Report) -> bool:
    """True if the outcomes of a scrape are those of the report."""
    outcomes = found.by("redelivery_outcomes_total", "outcome")
    return {name: getattr(report, name) for name in outcomes} == outcomes


def check(found: Scrape, report: redelivery.Report) -> None:
    """Compare a scrape with the report of the connection."""
    assert counts_equal(found, report)
    outcomes = found.by("redelivery_outcomes_total", "outcome")
    assert total(found, "redelivery_reconnects_total") >= 1
    dead = found.by("redelivery_dead_letters_total", "error_type")
    # A message that was dead-lettered without an answer is poison again at its redelivery.
    assert set(dead) <= {"ValueError", "other"}
    assert 0 < sum(dead.values()) <= outcomes["poisoned"]
    consumed = found.by("messaging_client_consumed_messages_total", "error_type")
    assert set(consumed) == {"", "ValueError", "LookupError"}
    [broker] = found.by("redelivery_info", "broker")
    assert "artemis" in broker.lower()

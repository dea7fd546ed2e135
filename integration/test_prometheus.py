"""Metrics with a real Artemis over both protocols: scraped while the connection is cut and cannot be restored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry
from tests.prometheus.scrapes import Scrape, scrape

import redelivery
from integration.eventually import eventually
from integration.proxy import LinkProxy
from integration.work import Running
from redelivery.prometheus import Metrics

if TYPE_CHECKING:
    from collections.abc import Callable

    from integration.brokers import Broker

MESSAGES = 200
OPTIONS: Any = {
    "jms__redeliveryPolicy__initialRedeliveryDelay": 100,
    "jms__redeliveryPolicy__maximumRedeliveries": 1,
}


def handle(message: redelivery.Message) -> None:
    """Fail always for every tenth message, and once for the message after it."""
    if int(message.text) % 10 == 0:
        raise ValueError("bad")
    if int(message.text) % 10 == 1 and message.redelivery_count == 0:
        raise LookupError("not yet")


def total(found: Scrape, name: str) -> float:
    """Return the sum of a metric over all connections and destinations."""
    return sum(value for (each, _), value in found.samples.items() if each == name)


@pytest.mark.parametrize("protocol", ["stomp", "amqp"])
def test_an_outage_is_scraped(artemis: Broker, unique_queue: str, protocol: str) -> None:
    """The connection metric is 0 during an outage, the reconnect is counted, and the counts equal the report."""
    registry = CollectorRegistry()
    with LinkProxy(artemis.ports[protocol]) as proxy:
        uri = artemis.uri(protocol=protocol, port=proxy.port, **OPTIONS)
        with redelivery.connect(uri, observers=[Metrics(registry)]) as connection:
            connection.listen(unique_queue, handle, workers=2)
            with Running(connection):
                send(connection, unique_queue, 0)
                eventually(lambda: total(scrape(registry), "redelivery_outcomes_total") >= MESSAGES / 2)
                proxy.refuse()
                proxy.cut()
                seen(registry, lambda found: total(found, "redelivery_connected") == 0)
                proxy.accept()
                seen(registry, lambda found: total(found, "redelivery_connected") == 1)
                send(connection, unique_queue, MESSAGES)
                eventually(lambda: connection.report().poisoned >= 2 * MESSAGES / 10)
                eventually(lambda: connection.health().consumers[0].parked == 0)
            check(scrape(registry), connection.report())
    after = scrape(registry)
    assert after.by("redelivery_connected", "connection") == {}
    assert after.by("redelivery_outcomes_total", "outcome")["poisoned"] >= 2 * MESSAGES / 10


def send(connection: redelivery.Connection, queue: str, first: int) -> None:
    """Send numbered messages."""
    for number in range(first, first + MESSAGES):
        connection.send(queue, str(number))


def seen(registry: CollectorRegistry, happened: Callable[[Scrape], bool]) -> None:
    """Scrape until `happened` is true."""
    eventually(lambda: happened(scrape(registry)))


def check(found: Scrape, report: redelivery.Report) -> None:
    """Compare a scrape with the report of the connection."""
    outcomes = found.by("redelivery_outcomes_total", "outcome")
    assert {name: getattr(report, name) for name in outcomes} == outcomes
    assert total(found, "redelivery_reconnects_total") >= 1
    dead = found.by("redelivery_dead_letters_total", "error_type")
    # A message that was dead-lettered without an answer is poison again at its redelivery.
    assert set(dead) <= {"ValueError", "other"}
    assert 0 < sum(dead.values()) <= outcomes["poisoned"]
    consumed = found.by("messaging_client_consumed_messages_total", "error_type")
    assert set(consumed) == {"", "ValueError", "LookupError"}
    [broker] = found.by("redelivery_info", "broker")
    assert "artemis" in broker.lower()

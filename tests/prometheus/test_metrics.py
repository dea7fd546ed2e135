"""Metrics for Prometheus: counts, labels, and the counts of closed connections."""

from __future__ import annotations

import gc
import weakref
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry, Counter
from tests.driver.twins import eventually
from tests.eventually import eventually as wait_for
from tests.prometheus.scrapes import scrape

import redelivery
from redelivery import (
    ConfigurationError,
    Defer,
    Discard,
    Poison,
    RedeliveryPolicy,
    RedeliveryPolicyMap,
)
from redelivery.prometheus import Metrics

if TYPE_CHECKING:
    from tests.driver.twins import Twin

    from redelivery import Message

ONCE = {"policies": RedeliveryPolicyMap(default=RedeliveryPolicy(maximum_redeliveries=1))}
RAISES: dict[str, type[Exception]] = {"bad": ValueError, "poison": Poison, "discard": Discard}


@pytest.fixture
def registry() -> CollectorRegistry:
    """Return a registry of this test."""
    return CollectorRegistry()


DEFERRED: set[str | None] = set()


def handle(message: Message) -> None:
    """Do what the message's text says."""
    if message.text == "defer" and message.message_id not in DEFERRED:
        DEFERRED.add(message.message_id)
        raise Defer(2, "not yet")
    if message.text in RAISES:
        raise RAISES[message.text]("no stock")


def worked(twin: Twin, connection: Any, bodies: tuple[str, ...] = ("good", "bad", *RAISES, "defer")) -> None:
    """Handle messages until all are settled."""
    twin.listen(connection, "orders", handle)
    for body in bodies:
        twin.call(connection.send("orders", body))
    twin.advance(10)
    eventually(twin, lambda: connection.health().consumers[0].parked == 0)


def test_counts_are_those_of_the_report(twin: Twin, registry: CollectorRegistry) -> None:
    """Each outcome is counted as in `report()`, after failures, deferrals, poison and discards."""
    connection = twin.connect(observers=[Metrics(registry)], **ONCE)
    worked(twin, connection)
    found, report = scrape(registry).by("redelivery_outcomes_total", "outcome"), asdict(connection.report())
    assert found == {name: count for name, count in report.items() if name not in ("running", "unconfirmed")}
    assert {name: count for name, count in found.items() if count} == {
        "accepted": 2, "redelivered": 2, "poisoned": 3, "discarded": 1, "deferred": 1,
    }  # fmt: skip


def test_messages_are_counted_by_the_type_of_their_error(twin: Twin, registry: CollectorRegistry) -> None:
    """Deliveries and dead letters have the class of the exception; deferred and discarded messages have no error."""
    connection = twin.connect(observers=[Metrics(registry)], **ONCE)
    worked(twin, connection)
    found = scrape(registry)
    expected = {"": 4, "ValueError": 4, "Poison": 1}
    assert found.by("messaging_client_consumed_messages_total", "error_type") == expected
    assert found.by("messaging_process_duration_seconds_count", "error_type") == expected
    assert found.by("redelivery_dead_letters_total", "error_type") == {"ValueError": 2, "Poison": 1}
    assert found.by("messaging_client_sent_messages_total", "messaging_destination_name") == {
        "queue://orders": 6
    }


def test_delays_are_in_buckets(twin: Twin, registry: CollectorRegistry) -> None:
    """Each delay is counted once: a delay of a second is in a lower bucket than one of two."""
    connection = twin.connect(observers=[Metrics(registry)], **ONCE)
    worked(twin, connection, ("bad", "defer"))
    found = scrape(registry)

    def below(bound: str) -> float | None:
        return found.value("redelivery_delay_seconds_bucket", destination="queue://orders", le=bound)

    assert [below(bound) for bound in ("0.5", "1.0", "5.0", "+Inf")] == [0, 1, 2, 2]
    assert found.value("redelivery_delay_seconds_sum", destination="queue://orders") == 3


def test_a_message_that_was_pulled_is_counted_without_a_duration(
    twin: Twin, registry: CollectorRegistry
) -> None:
    """A pulled message is counted without a duration: no handler ran."""
    connection = twin.connect(observers=[Metrics(registry)])
    consumer = twin.call(connection.consumer("orders"))
    for body in ("a", "b"):
        twin.broker.send("orders", body)
    twin.receive(consumer).accept()
    twin.receive(consumer).fail("no_stock: of 4711")
    found = scrape(registry)
    consumed = found.by("messaging_client_consumed_messages_total", "error_type")
    assert consumed == {"": 1, "other": 1}
    assert found.by("messaging_process_duration_seconds_count", "error_type") == {}


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_message_of_a_transaction_is_counted_once(
    twin: Twin, registry: CollectorRegistry, end: str
) -> None:
    """A message of a transaction has a duration when its handler ends.

    It is counted by the commit, or by the end of the session.
    """
    connection = twin.connect(observers=[Metrics(registry)])
    session = connection.session("transacted")
    session.listen("orders", lambda _: None) if not twin.asynchronous else session.listen("orders", _nothing)
    twin.call(connection.start())
    twin.broker.send("orders", "a")
    eventually(twin, lambda: scrape(registry).by("messaging_process_duration_seconds_count", "error_type"))
    counted = scrape(registry).by("messaging_client_consumed_messages_total", "error_type")
    assert sum(counted.values()) in (0, 1)
    twin.call(session.commit() if end == "commit" else session.rollback())
    counted = scrape(registry).by("messaging_client_consumed_messages_total", "error_type")
    assert sum(counted.values()) == 1


async def _nothing(_: Message) -> None:
    """Do nothing."""


def test_gauges_are_read_when_scraped(twin: Twin, registry: CollectorRegistry) -> None:
    """Parked messages, workers, credit, the connection and its broker are read at each scrape."""
    connection = twin.connect("?redelivery.credit=7", observers=[Metrics(registry)])
    twin.listen(connection, "orders", handle, workers=2)
    twin.broker.send("orders", "bad")
    eventually(twin, lambda: connection.report().redelivered)
    twin.advance(0.25)
    found = scrape(registry)
    gauges = ("parked", "running", "unconfirmed", "ready", "credit", "breaker_state")
    values = [found.value(f"redelivery_{name}", destination="queue://orders") for name in gauges]
    assert values == [1, 0, 0, 0, 7, 0]
    oldest = found.value("redelivery_oldest_parked_seconds", destination="queue://orders")
    assert oldest == connection.health().consumers[0].oldest_parked_s > 0
    [name] = found.by("redelivery_connected", "connection")
    assert found.value("redelivery_connected", connection=name) == 1
    assert found.value("redelivery_workers_alive", connection=name) == 2
    assert found.value("redelivery_info", connection=name, broker="memory", version="") == 1


def test_an_outage_is_seen(twin: Twin, registry: CollectorRegistry) -> None:
    """A lost connection is 0 while it is down, and counts as a reconnect after it."""
    connection = twin.connect(observers=[Metrics(registry)])
    twin.listen(connection, "orders", handle)
    twin.broker.cut()
    assert set(scrape(registry).by("redelivery_connected", "connection").values()) <= {0, 1}
    twin.advance(1)
    eventually(twin, lambda: connection.connected)
    found = scrape(registry)
    assert list(found.by("redelivery_connected", "connection").values()) == [1]
    assert list(found.by("redelivery_reconnects_total", "connection").values()) == [1]


def test_the_breaker_is_a_gauge_and_counts(twin: Twin, registry: CollectorRegistry) -> None:
    """An open breaker is 2, and its change is counted once in an outage, however many probes fail."""
    options = {"breaker": redelivery.Breaker(named=2), "errors": redelivery.Classifier().trip(OSError)}
    connection = twin.connect(observers=[Metrics(registry)], **options)

    def down(_: Message) -> None:
        raise OSError("down")

    twin.listen(connection, "orders", down)
    for _ in range(3):
        twin.broker.send("orders", "a")
    eventually(twin, lambda: connection.health().consumers[0].breaker == "open")
    eventually(twin, lambda: scrape(registry).by("redelivery_breaker_transitions_total", "state").get("open"))
    found = scrape(registry)
    assert found.value("redelivery_breaker_state", destination="queue://orders") == 2
    assert found.by("redelivery_outcomes_total", "outcome")["spared"] == connection.report().spared > 0
    twin.advance(60)
    # Probes that fail are no changes.
    assert connection.health().consumers[0].breaker in ("open", "probing")
    found = scrape(registry)
    assert found.value("redelivery_breaker_state", destination="queue://orders") == 2
    transitions = found.by("redelivery_breaker_transitions_total", "state")
    assert transitions == {"closed": 0, "open": 1, "ramp": 0}


def test_counts_stay_when_a_connection_is_closed(twin: Twin, registry: CollectorRegistry) -> None:
    """A closed connection is not kept by the registry: its gauges end, its counts stay."""
    connection = twin.connect(observers=[Metrics(registry)], **ONCE)
    worked(twin, connection)
    before = scrape(registry)
    kept = weakref.ref(connection)
    twin.leave(connection)
    assert scrape(registry).by("redelivery_connected", "connection") == {}
    twin.connections.clear()
    del connection
    wait_for(lambda: gc.collect() >= 0 and kept() is None)
    after = scrape(registry)
    for name in ("redelivery_outcomes_total", "redelivery_dead_letters_total"):
        assert after.by(name, "destination") == before.by(name, "destination") != {}
    assert after.by("redelivery_outcomes_total", "outcome")["poisoned"] == 3
    assert after.by("redelivery_reconnects_total", "connection") == before.by(
        "redelivery_reconnects_total", "connection"
    )


def test_connections_of_one_registry_add_up(twin: Twin, registry: CollectorRegistry) -> None:
    """Connections of one registry add up, each with its own `Metrics` or all with one."""
    one = Metrics(registry)
    for metrics in (one, one, Metrics(registry)):
        connection = twin.connect(observers=[metrics], **ONCE)
        worked(twin, connection, ("bad",))
        twin.call(connection.drain())
    found = scrape(registry)
    assert found.by("redelivery_outcomes_total", "outcome")["poisoned"] == 3
    assert found.by("redelivery_dead_letters_total", "error_type") == {"ValueError": 3}
    assert found.by("messaging_client_consumed_messages_total", "error_type") == {"ValueError": 6}


def test_metrics_of_a_listener_have_its_connection(twin: Twin, registry: CollectorRegistry) -> None:
    """`Metrics` of a listener also export the state of its connection."""
    connection = twin.connect()
    twin.listen(connection, "orders", handle, observers=[Metrics(registry)])
    twin.broker.send("orders", "good")
    eventually(twin, lambda: connection.report().accepted)
    found = scrape(registry)
    assert list(found.by("redelivery_connected", "connection").values()) == [1]
    assert found.by("redelivery_outcomes_total", "outcome")["accepted"] == 1


def test_destinations_are_bounded(twin: Twin, registry: CollectorRegistry) -> None:
    """Destinations past the limit are counted as `other`, and no count is lost."""
    connection = twin.connect(observers=[Metrics(registry, destinations=2)])
    for number in range(5):
        twin.call(connection.send(f"q{number}", "a"))
        consumer = twin.call(connection.consumer(f"q{number}"))
        twin.receive(consumer).accept()
        twin.call(consumer.close())
    found = scrape(registry)
    expected = {"queue://q0": 1, "queue://q1": 1, "other": 3}
    assert found.by("redelivery_outcomes_total", "destination") == expected
    assert found.by("messaging_client_sent_messages_total", "messaging_destination_name") == expected
    assert found.by("messaging_client_consumed_messages_total", "messaging_destination_name") == expected


def test_types_of_errors_are_bounded(twin: Twin, registry: CollectorRegistry) -> None:
    """50 types of errors have names, the others are counted together."""
    connection = twin.connect(observers=[Metrics(registry)], **ONCE)

    def raises(message: Message) -> None:
        raise type(f"Error{message.text}", (Exception,), {})("x")

    twin.listen(connection, "orders", raises)
    for number in range(60):
        twin.broker.send("orders", str(number))
    eventually(twin, lambda: connection.report().redelivered == 60)
    found = scrape(registry).by("messaging_client_consumed_messages_total", "error_type")
    assert (len(found), found["other"], sum(found.values())) == (51, 10, 60)


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb", "ä ö", "a{b=1}", "x" * 1000])
def test_odd_names_are_escaped(twin: Twin, registry: CollectorRegistry, name: str) -> None:
    """A scrape can be read with any names of classes, which may be any text."""
    odd = type("Odd", (Exception,), {})
    odd.__name__ = name
    connection = twin.connect(observers=[Metrics(registry)], **ONCE)

    def raises(_: Message) -> None:
        raise odd

    twin.listen(connection, "orders", raises)
    twin.broker.send("orders", "a")
    eventually(twin, lambda: connection.report().redelivered)
    found = scrape(registry).by("messaging_client_consumed_messages_total", "error_type")
    assert found == {name[:200]: 1}


def test_no_text_of_an_application_is_a_label(twin: Twin, registry: CollectorRegistry) -> None:
    """Ids, reasons and headers are not exported, even if a reason looks like a type of error."""
    connection = twin.connect(observers=[Metrics(registry)], **ONCE)

    def fails(message: Message) -> None:
        message.fail("customer_4711: refused")

    twin.listen(connection, "orders", fails)
    name = twin.call(connection.send("orders", "secret body", headers={"secret": "s3cr3t"}))
    twin.advance(5)
    eventually(twin, lambda: connection.report().poisoned)
    found = scrape(registry)
    assert found.by("redelivery_dead_letters_total", "error_type") == {"other": 1}
    for text in ("customer_4711", "secret", "s3cr3t", name):
        assert text not in found.body


def test_a_registry_that_has_such_a_metric_refuses(registry: CollectorRegistry) -> None:
    """A registry with another metric of one of the names refuses: every scrape would be wrong."""
    Counter("redelivery_outcomes", "of somebody else", registry=registry)
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        Metrics(registry)


@pytest.mark.parametrize("destinations", [0, 1001, True, "100"])
def test_a_limit_is_a_number(registry: CollectorRegistry, destinations: Any) -> None:
    """The number of destinations is from 1 to 1000."""
    with pytest.raises(ConfigurationError, match="destinations"):
        Metrics(registry, destinations=destinations)

"""Counts of the collector of one registry."""

from __future__ import annotations

from math import inf, isfinite
from typing import TYPE_CHECKING

import pytest
from prometheus_client import CollectorRegistry
from tests.driver.twins import eventually
from tests.prometheus.scrapes import scrape

import redelivery
from redelivery import RedeliveryPolicy, RedeliveryPolicyMap
from redelivery.core.commands import Subscribe
from redelivery.events import BreakerChanged
from redelivery.prometheus import Metrics
from redelivery.prometheus.metrics import exporter_of

if TYPE_CHECKING:
    from tests.driver.twins import Twin

    from redelivery import Message
    from redelivery.core.breaker import BreakerState


@pytest.fixture
def registry() -> CollectorRegistry:
    """Return a registry of this test."""
    return CollectorRegistry()


def changed(old: BreakerState, new: BreakerState) -> BreakerChanged:
    """Return a change of a consumer's breaker."""
    consumer = Subscribe(1, "queue://orders", 1)
    return BreakerChanged(0.0, consumer, old, new, "OSError", 1, 1, 1.0, 0, 0.0, False, False, False)


def test_a_probe_that_fails_is_no_change(registry: CollectorRegistry) -> None:
    """A breaker that stays open is counted as opened once."""
    metrics = Metrics(registry)
    for event in (changed("closed", "open"), changed("open", "open"), changed("open", "open")):
        metrics.event(event)
    assert scrape(registry).by("redelivery_breaker_transitions_total", "state") == {"open": 1}


def test_a_delay_without_an_end_leaves_the_sum_a_number(registry: CollectorRegistry) -> None:
    """An infinite delay counts as the longest one."""
    Metrics(registry)
    exporter = exporter_of(registry)
    exporter.delayed("queue://orders", inf)
    exporter.delayed("queue://orders", 1.0)
    found = scrape(registry)
    assert found.value("redelivery_delay_seconds_bucket", destination="queue://orders", le="86400.0") == 1
    assert found.value("redelivery_delay_seconds_count", destination="queue://orders") == 2
    total = found.value("redelivery_delay_seconds_sum", destination="queue://orders")
    assert total is not None
    assert isfinite(total)


ONCE = RedeliveryPolicyMap(default=RedeliveryPolicy(maximum_redeliveries=1))


def handle(_: Message) -> None:
    """Succeed."""


def test_a_connection_counts_once_for_its_registry(twin: Twin, registry: CollectorRegistry) -> None:
    """A connection counts once, even if one of its listeners has metrics of the same registry."""
    connection = twin.connect(observers=[Metrics(registry)])
    twin.listen(connection, "orders", handle, observers=[Metrics(registry)])
    twin.broker.send("orders", "a")
    eventually(twin, lambda: connection.report().accepted)
    found = scrape(registry)
    assert found.by("redelivery_outcomes_total", "outcome")["accepted"] == 1
    assert list(found.by("redelivery_workers_alive", "connection").values()) == [1]


def test_the_worst_of_several_consumers_and_connections_is_shown(
    twin: Twin, registry: CollectorRegistry
) -> None:
    """A lost connection, and an open breaker, are not hidden by others with the same labels."""

    def down(_: Message) -> None:
        raise OSError("down")

    errors = redelivery.Classifier().trip(OSError)
    metrics = Metrics(registry)
    first = twin.connect(observers=[metrics], breaker=redelivery.Breaker(named=1), errors=errors)
    twin.listen(first, "orders", down)
    twin.broker.send("orders", "a")
    eventually(twin, lambda: first.health().consumers[0].breaker == "open")
    second = twin.connect(observers=[metrics])
    twin.listen(second, "orders", handle)
    # It has the same name as another connection, and is not connected yet.
    third = twin.make(observers=[metrics])
    assert not third.connected
    found = scrape(registry)
    assert list(found.by("redelivery_connected", "connection").values()) == [0]
    assert found.by("redelivery_breaker_state", "destination") == {"queue://orders": 2}


def test_a_failure_that_is_given_as_an_exception_has_its_type(
    twin: Twin, registry: CollectorRegistry
) -> None:
    """An exception that is given to `fail` has its type, as if the handler had raised it; a text has none."""

    def gives(message: Message) -> None:
        message.fail(ValueError("no stock") if message.text == "exception" else "ValueError: in words")

    connection = twin.connect(observers=[Metrics(registry)], policies=ONCE)
    twin.listen(connection, "orders", gives)
    for body in ("exception", "words"):
        twin.broker.send("orders", body)
    twin.advance(5)
    eventually(twin, lambda: connection.report().poisoned == 2)
    found = scrape(registry)
    assert found.by("messaging_client_consumed_messages_total", "error_type") == {"ValueError": 2, "other": 2}
    assert found.by("redelivery_dead_letters_total", "error_type") == {"ValueError": 1, "other": 1}


def test_a_group_has_the_type_that_its_policy_goes_by(twin: Twin, registry: CollectorRegistry) -> None:
    """An exception group has the type of the exception in it that has a rule."""

    def tasks(_: Message) -> None:
        raise ExceptionGroup("tasks", [KeyError("x"), ExceptionGroup("", [OSError("y")])])

    errors = redelivery.Classifier().poison(OSError)
    connection = twin.connect(observers=[Metrics(registry)], errors=errors)
    twin.listen(connection, "orders", tasks)
    twin.broker.send("orders", "a")
    eventually(twin, lambda: connection.report().poisoned)
    found = scrape(registry)
    assert found.by("messaging_client_consumed_messages_total", "error_type") == {"OSError": 1}

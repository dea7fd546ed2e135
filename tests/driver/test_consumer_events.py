"""Events of a consumer, one by one: which are shown once, and the breaker's log lines."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
from tests.core.model import Arrival, Letter

from redelivery import AdapterError, ConfigurationError, RedeliveryPolicy, RedeliveryPolicyMap, Report
from redelivery.core.commands import Forward, Hold, PolicyFault, SetAside, StillAside, Subscribe
from redelivery.core.delivery import Cause, Record
from redelivery.core.events import Failed
from redelivery.core.outgoing import Outgoing
from redelivery.driver.consumer.consumer_events import ConsumerEvents, result_log
from redelivery.driver.event_log import breaker_line
from redelivery.driver.observers import Observers
from redelivery.events import BreakerChanged, ObservedConnection
from redelivery.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redelivery.events import Event

ORDERS = Subscribe(1, "queue://orders", 1)
POLICIES = RedeliveryPolicyMap(default=RedeliveryPolicy())
CAUSE = Cause("it failed")


@pytest.fixture
def events() -> ConsumerEvents:
    """Return the events of a consumer."""
    return ConsumerEvents(ORDERS, ManualClock(), POLICIES, Observers())


def names(found: Sequence[Event]) -> list[str]:
    """Return the kinds of events."""
    return [each.name for each in found]


def test_a_message_that_is_set_aside_again_is_not_said_again(events: ConsumerEvents) -> None:
    """A message that is set aside is reported once, and then each hour."""
    delivery, error = Arrival(Letter(1), 1, counts=False), AdapterError("use AMQP")
    for command in (
        SetAside(delivery, error), SetAside(delivery, error, again=True), StillAside(delivery, error),
    ):  # fmt: skip
        events.aside(command)
    found: Sequence[Any] = events.take()
    assert [(each.name, each.still) for each in found] == [("set aside", False), ("set aside", True)]


def test_a_redrive_is_no_dead_letter(events: ConsumerEvents) -> None:
    """A copy that is sent again after a reconnect is reported if it is a dead letter, and not if it is redriven."""
    delivery = Arrival(Letter(1), 1, counts=False)
    for redrive in (False, True):
        events.waits([Forward(delivery, Outgoing("queue://DLQ", b""), CAUSE, 1, redrive=redrive)])
    assert names(events.take()) == ["dead-lettering"]


def test_what_lasts_is_said_once(events: ConsumerEvents) -> None:
    """Full parking, a spent credit and stale results are reported once; a policy once for each faulty member."""
    policy = RedeliveryPolicy()
    for _ in range(2):
        events.full(1)
        events.spent(1)
        events.stale()
        for member in ("maximum_redeliveries", "redelivery_delay_ms"):
            events.policy(PolicyFault(policy, member, f"{member} is wrong", None))
    assert names(events.take()) == [
        "parking full", "credit spent", "result stale", "policy fault", "policy fault",
    ]  # fmt: skip


def test_a_failure_that_was_spared_is_not_parked_as_a_deferral(events: ConsumerEvents) -> None:
    """A failure that was spared is shown as failed, not as deferred."""
    parked: list[bool] = []
    for spared in (True, False):
        delivery = Arrival(Letter(1), 1, counts=False)
        delivery.record = Record()
        delivery.record.spared = spared
        events.waits([Hold(delivery, 1.0, 1.0, 0, CAUSE, deferred=True)])
        found: Sequence[Any] = events.take()
        parked += [each.deferred for each in found]
    assert parked == [False, True]


def changed(cause: str, delay: float = 1.0, old: Any = "closed") -> BreakerChanged:
    """Return an event of a breaker that opens."""
    return BreakerChanged(0.0, ORDERS, old, "open", cause, 5, 3, delay, 0, 0.0, False, False, False)


@pytest.mark.parametrize(
    ("cause", "proposed"), [("OSError: down", "retry(OSError, outage=False)"), ("no stock: of 1", None)]
)
def test_a_rule_is_proposed_for_an_exception_alone(cause: str, proposed: str | None) -> None:
    """The breaker's line proposes a rule only for an exception: a reason in words is no name in Python."""
    level, text = breaker_line(changed(cause))
    assert level == logging.WARNING
    assert ("Classifier()" in text) == (proposed is not None)
    assert (proposed or "") in text


def test_a_try_that_has_proved_nothing_is_for_those_who_look_closely() -> None:
    """A tried message that proves nothing is logged at DEBUG: there may be many a second."""
    assert breaker_line(changed("OSError: down", 0.0, "probing"))[0] == logging.DEBUG
    assert breaker_line(changed("OSError: down", 1.0, "probing"))[0] == logging.INFO


def test_a_result_of_the_spark_source_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """A result of the Spark source is one line; earlier results are not logged again."""
    log = result_log("queue://orders", POLICIES, ManualClock())
    for number in range(3):
        delivery = Arrival(Letter(number), 1, counts=False)
        delivery.record, delivery.outcome = Record(1), "redelivered"
        log(Failed(delivery, CAUSE), [Hold(delivery, 1.0, 1.0, 1, CAUSE)])
    assert len([each for each in caplog.messages if "failed (it failed); redelivery in 1 s" in each]) == 3


def test_a_connection_of_another_process_has_no_health() -> None:
    """An observed connection has no health in a child process after a fork, and raises nothing."""

    class Refuses:
        def health(self) -> Any:
            raise ConfigurationError("this is its child")

    reports = {"queue://orders": Report(accepted=1)}
    known = ObservedConnection("a:1", Refuses, lambda: reports, lambda: 2, lambda: False)
    assert known.health() is None
    assert (known.reports(), known.reconnects(), known.over) == (reports, 2, False)

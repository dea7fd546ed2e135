"""Time limits of brokers for unsettled messages, and other checks before a consumer starts."""

from __future__ import annotations

from datetime import timedelta

import pytest

import redelivery
from redelivery import ConfigurationError, RedeliveryPolicy, RedeliveryPolicyMap
from redelivery.core.capabilities import Capabilities
from redelivery.core.destination import Destination
from redelivery.driver.consumer.plan import planned

HALF_AN_HOUR = Capabilities("impatient", max_hold=1800.0)


def plan(policies: RedeliveryPolicyMap, destination: str, able: Capabilities = HALF_AN_HOUR) -> None:
    settings = redelivery.connect("memory://plan", policies=policies).settings
    planned(1, Destination.parse(destination), {}, settings, able)


def lasting(minutes: int, **options: bool) -> RedeliveryPolicy:
    """Return a policy with a redelivery after so many minutes, and another one a minute later."""
    delay = timedelta(minutes=minutes)
    return RedeliveryPolicy(
        maximum_redeliveries=2, initial_redelivery_delay=delay, redelivery_delay=60.0, **options
    )


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        (lasting(24), "1500 s"),
        (lasting(23, use_collision_avoidance=True), "1449 s"),
        (RedeliveryPolicy(maximum_redeliveries=-1), "without end"),
    ],
)
def test_a_policy_that_outlasts_the_broker_is_refused(policy: RedeliveryPolicy, told: str) -> None:
    """A policy whose delays exceed 80 % of the broker's limit, jitter included, or have no end, is refused."""
    with pytest.raises(ConfigurationError, match=f"(?s){told}.*impatient.*1440 s"):
        plan(RedeliveryPolicyMap(default=policy), "orders")
    plan(RedeliveryPolicyMap(default=policy), "orders", Capabilities("patient"))


def test_a_limit_of_time_bounds_what_is_held() -> None:
    """A policy without a maximum is allowed if its time limit is below the broker's."""
    for minutes, refused in ((24, False), (25, True)):
        policy = RedeliveryPolicy(maximum_redeliveries=-1, maximum_elapsed=timedelta(minutes=minutes))
        if refused:
            with pytest.raises(ConfigurationError, match="1500 s"):
                plan(RedeliveryPolicyMap(default=policy), "orders")
        else:
            plan(RedeliveryPolicyMap(default=policy), "orders")


def test_only_the_policies_that_may_serve_count() -> None:
    """A policy for other destinations is not checked; behind a wildcard or native address all are checked."""
    policies = RedeliveryPolicyMap({"slow.>": lasting(60)}, default=lasting(23))
    plan(policies, "orders")
    for destination in ("slow.lane", "*.lane", "native:///amq/queue/orders"):
        with pytest.raises(ConfigurationError, match="slow"):
            plan(policies, destination)


def test_what_is_checked_before_the_first_dispatch() -> None:
    """The DLQ of one queue or topic is checked before the first dispatch; not of a wildcard or temporary queue."""
    settings = redelivery.connect("memory://plan?redelivery.deadLetterStrategy=individual").settings
    vectors = {
        "orders": ("queue://DLQ.orders",), "topic://prices": ("queue://DLQ.prices",), "orders.*": (), "topic://>": (),
        "temp-queue://answers": (),
    }  # fmt: skip
    for name, expected in vectors.items():
        subscribe, _ = planned(1, Destination.parse(name), {}, settings, Capabilities("any"))
        assert subscribe.dead_letters == expected


COPIES = Capabilities("artemis", copies_by_wildcard=True)
QUEUES = Capabilities("activemq")
NONE = Capabilities("rabbitmq", queue_wildcards=False)


@pytest.mark.parametrize(
    ("able", "option", "names", "told"),
    [
        (COPIES, "", ("a.>", "a.*", "temp-queue://a.>"), "redelivery.wildcards=address"),
        (COPIES, "", ("a.#", "a.#.b", "#"), "write > at its end"),
        (COPIES, "?redelivery.wildcards=address", ("a.>", "a.*"), None),
        (COPIES, "?redelivery.wildcards=address", ("a.#",), "write > at its end"),
        (COPIES, "", ("a", "a#", "native://a.#", "topic://a.>", "topic://a.#"), None),
        (QUEUES, "", ("a.>", "a.#", "a"), None),
        (QUEUES, "?redelivery.wildcards=address", ("a.>",), "means the queues themselves"),
        (QUEUES, "?redelivery.wildcards=address", ("a", "topic://a.>"), None),
        (NONE, "", ("a.>",), "name each queue"),
        (NONE, "?redelivery.wildcards=address", ("a.>",), "name each queue"),
    ],
)
def test_wildcards_that_are_not_the_queues(
    able: Capabilities, option: str, names: tuple[str, ...], told: str | None
) -> None:
    """A consumer's wildcard is refused where the broker copies messages for it, unless the user asks for that."""
    settings = redelivery.connect(f"memory://plan{option}").settings
    for name in names:
        if told is None:
            planned(1, Destination.parse(name), {}, settings, able)
        else:
            with pytest.raises(ConfigurationError, match=told):
                planned(1, Destination.parse(name), {}, settings, able)

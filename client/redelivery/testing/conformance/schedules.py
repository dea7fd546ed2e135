"""Times of redeliveries: never early, and little late."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import redelivery
from redelivery import RedeliveryPolicy
from redelivery.testing.conformance.bench import Suite

if TYPE_CHECKING:
    from redelivery.core.policy.redelivery_policy import Policy
    from redelivery.testing.conformance.bench import Bench

__all__ = ["Schedules"]

POLICIES: dict[str, tuple[Policy, list[float]]] = {
    "constant": (
        RedeliveryPolicy(maximum_redeliveries=3, initial_redelivery_delay=0.05, redelivery_delay=0.1),
        [0.05, 0.1, 0.1],
    ),
    "exponential": (
        RedeliveryPolicy(
            maximum_redeliveries=3,
            initial_redelivery_delay=0.05,
            use_exponential_back_off=True,
            back_off_multiplier=2,
        ),
        [0.05, 0.1, 0.2],
    ),
    "capped": (
        RedeliveryPolicy(
            maximum_redeliveries=3,
            initial_redelivery_delay=0.05,
            redelivery_delay=0.05,
            use_exponential_back_off=True,
            back_off_multiplier=3,
            maximum_redelivery_delay=0.12,
        ),
        [0.05, 0.12, 0.12],
    ),
    "list": (RedeliveryPolicy.from_delays([0.1, 0.02, 0.15]), [0.1, 0.02, 0.15]),
    "at once": (
        RedeliveryPolicy(maximum_redeliveries=2, initial_redelivery_delay=0, redelivery_delay=0),
        [0.0, 0.0],
    ),
}
JITTER = RedeliveryPolicy(
    maximum_redeliveries=4,
    initial_redelivery_delay=0.05,
    redelivery_delay=0.1,
    use_collision_avoidance=True,
    collision_avoidance_factor=0.5,
)
# Seconds. Clock readings are floats.
ROUNDING = 1e-6


def waits(bench: Bench, policy: Policy) -> list[float]:
    """Fail a message until it is poison; return the seconds from each failure to the next delivery."""
    bench.send("bad")
    connection = bench.connect(policy)
    consumer = connection.consumer(bench.queue)
    found: list[float] = []
    message = bench.pull(consumer)
    for _ in range(policy.maximum_redeliveries):
        failed = bench.clock.monotonic()
        message.fail("no")
        message = bench.pull(consumer)
        found.append(bench.clock.monotonic() - failed)
    message.fail("no")
    assert message.delivery_count == policy.maximum_redeliveries + 1
    assert len(bench.buried(connection, 1)) == 1
    return found


class Schedules(Suite):
    """Time of the redelivery of a failed message."""

    @pytest.mark.parametrize("name", POLICIES)
    def test_each_redelivery_comes_when_it_is_due(self, bench: Bench, name: str) -> None:
        """A redelivery is not early by its policy's delay, and at most `late` seconds late."""
        policy, delays = POLICIES[name]
        for wait, delay in zip(waits(bench, policy), delays, strict=True):
            assert delay - ROUNDING <= wait <= delay + bench.broker.late

    def test_collision_avoidance_stays_within_its_share(self, bench: Bench) -> None:
        """Each delay but the first varies by at most the factor, and they are not all the same."""
        first, *others = waits(bench, JITTER)
        late = bench.broker.late
        assert 0.05 - ROUNDING <= first <= 0.05 + late
        for wait in others:
            assert 0.05 - ROUNDING <= wait <= 0.15 + late
        assert len({round(wait, 6) for wait in others}) > 1

    def test_each_message_waits_for_its_own_time(self, bench: Bench) -> None:
        """Messages of one consumer are redelivered in the order of their due times."""
        delays = {"0": 0.25, "1": 0.05, "2": 0.15}
        for body in delays:
            bench.send(body)
        consumer = bench.connect().consumer(bench.queue)
        held = [bench.pull(consumer) for _ in delays]
        failed: dict[str, float] = {}
        for message in held:
            failed[message.text] = bench.clock.monotonic()
            with message:
                raise redelivery.Defer(delays[message.text])
        for body in sorted(delays, key=lambda each: failed[each] + delays[each]):
            message = bench.pull(consumer)
            wait = bench.clock.monotonic() - failed[body]
            assert (message.text, message.accept()) == (body, True)
            assert delays[body] - ROUNDING <= wait <= delays[body] + bench.broker.late

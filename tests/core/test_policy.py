"""Redelivery policy: the Java client's delays to the millisecond, and refused values."""

from __future__ import annotations

import copy
import json
import math
import pickle
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.for_each import for_each

from redelivery.core.policy.redelivery_policy import DelayListPolicy, Policy, RedeliveryPolicy
from redelivery.errors import ConfigurationError

VECTORS = Path(__file__).parents[1] / "vectors"
MAX_LONG = 2**63 - 1


def vectors(family: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((VECTORS / f"{family}.json").read_text())["vectors"]
    return found


def senseless(options: dict[str, Any]) -> bool:
    """Return True if the Java client accepts a value here that makes no sense: such a policy is refused."""
    return (
        options.get("initialRedeliveryDelay", 0) < 0
        or options.get("redeliveryDelay", 0) < 0
        or options.get("maximumRedeliveryDelay", -1) < -1
        or options.get("maximumRedeliveries", 0) < -1
        or not float(options.get("backOffMultiplier", 1)) >= 0
        or not 0 <= options.get("collisionAvoidancePercent", 0) <= 100
    )


def sensible(family: str) -> list[dict[str, Any]]:
    return [vector for vector in vectors(family) if not senseless(vector["policy"])]


policies = st.builds(
    RedeliveryPolicy,
    maximum_redeliveries=st.integers(-1, 40),
    initial_redelivery_delay=st.integers(0, 10**6).map(lambda ms: ms / 1000),
    redelivery_delay=st.integers(0, 10**6).map(lambda ms: ms / 1000),
    maximum_redelivery_delay=st.none() | st.integers(0, 10**7).map(lambda ms: ms / 1000),
    use_exponential_back_off=st.booleans(),
    back_off_multiplier=st.floats(0, 20, allow_nan=False),
    use_collision_avoidance=st.booleans(),
    collision_avoidance_factor=st.floats(0, 1),
)


class CountingRandom(Random):
    count = 0

    def random(self) -> float:
        self.count += 1
        return super().random()


@for_each(sensible("redelivery_delays"))
def test_delays_are_the_references_integers(vector: dict[str, Any]) -> None:
    """Every recorded chain of eight delays is reproduced to the millisecond, by each method."""
    policy = RedeliveryPolicy.from_options(vector["policy"])
    expected = vector["delays_ms"]
    assert policy.delays_ms(8) == expected
    assert [policy.redelivery_delay_ms(n) for n in (8, 3, 1, 2, 4, 5, 6, 7)] == [
        expected[n - 1] for n in (8, 3, 1, 2, 4, 5, 6, 7)
    ]


@for_each(sensible("next_redelivery_delay"))
def test_next_delay_is_the_references_integer(vector: dict[str, Any]) -> None:
    """One step from any previous delay gives the Java client's result."""
    policy = RedeliveryPolicy.from_options(vector["policy"])
    assert policy.next_redelivery_delay_ms(vector["previous_ms"]) == vector["next_ms"]


@for_each(sensible("collision_avoidance"))
def test_jitter_stays_in_the_references_bounds_and_has_its_mean(vector: dict[str, Any]) -> None:
    """Randomised delays lie in the Java client's bounds, near its mean, drawn again from the first step."""
    policy = RedeliveryPolicy.from_options(vector["policy"])
    random = Random(7)
    for step in vector["steps"]:
        draws = [policy.redelivery_delay_ms(step["redelivery"], random) for _ in range(2000)]
        low, high = step["bound_lo_ms"], step["bound_hi_ms"]
        assert low <= min(draws)
        assert max(draws) <= high
        assert math.isclose(
            sum(draws) / len(draws), step["observed_mean_ms"], abs_tol=0.06 * (high - low) + 1e-6
        )


@pytest.mark.parametrize("family", ["redelivery_delays", "next_redelivery_delay", "collision_avoidance"])
def test_senseless_values_are_refused(family: str) -> None:
    """A value that the Java client accepts but makes no sense raises ConfigurationError with the option's name."""
    for vector in vectors(family):
        if senseless(vector["policy"]):
            with pytest.raises(ConfigurationError) as caught:
                RedeliveryPolicy.from_options(vector["policy"])
            assert caught.value.option in vector["policy"]


def test_durations_are_seconds_or_timedelta_rounded_to_milliseconds() -> None:
    """Seconds as a float, and a timedelta, make the same policy as the Java client's milliseconds."""
    by_seconds = RedeliveryPolicy(initial_redelivery_delay=0.5004, redelivery_delay=2)
    by_delta = RedeliveryPolicy(
        initial_redelivery_delay=timedelta(milliseconds=500), redelivery_delay=timedelta(seconds=2)
    )
    assert by_seconds == by_delta
    assert hash(by_seconds) == hash(by_delta)
    assert by_seconds == RedeliveryPolicy.from_options(
        {"initialRedeliveryDelay": "500", "redeliveryDelay": 2000.0}
    )
    assert by_seconds.initial_redelivery_delay == 0.5


def test_defaults_are_the_references() -> None:
    """A plain policy has the defaults of the Java client."""
    assert RedeliveryPolicy().to_options() == {
        "maximumRedeliveries": "6",
        "initialRedeliveryDelay": "1000",
        "redeliveryDelay": "1000",
        "maximumRedeliveryDelay": "-1",
        "useExponentialBackOff": "false",
        "backOffMultiplier": "5.0",
        "useCollisionAvoidance": "false",
        "collisionAvoidancePercent": "15",
        "preDispatchCheck": "true",
    }


@given(policies)
def test_options_round_trip(policy: RedeliveryPolicy) -> None:
    """A policy written in the Java client's names reads back equal; a pickle and a copy are equal, too."""
    assert RedeliveryPolicy.from_options(policy.to_options()) == policy
    assert pickle.loads(pickle.dumps(policy)) == policy
    assert copy.deepcopy(policy) == policy


@given(policies, st.integers(1, 700))
def test_a_delay_is_found_without_walking_the_chain(policy: RedeliveryPolicy, redelivery: int) -> None:
    """The delay for any count equals that of the chain computed step by step."""
    assert policy.redelivery_delay_ms(redelivery) == policy.delays_ms(redelivery)[-1]


@given(policies, st.randoms(use_true_random=False))
def test_delays_are_never_negative_and_the_cap_holds(policy: RedeliveryPolicy, random: Random) -> None:
    """No delay is negative; without jitter no exponential step exceeds max(cap, redeliveryDelay)."""
    assert all(delay >= 0 for delay in policy.delays_ms(20, random))
    cap = policy.maximum_redelivery_delay
    if cap is not None and policy.use_exponential_back_off:
        assert all(
            delay <= round(max(cap, policy.redelivery_delay) * 1000) for delay in policy.delays_ms(20)[1:]
        )


@given(policies, st.randoms(use_true_random=False))
def test_worst_case_bounds_the_sum(policy: RedeliveryPolicy, random: Random) -> None:
    """The worst case is at least the sum of any drawn delays; without a maximum there is none."""
    worst = policy.worst_case_ms()
    if policy.maximum_redeliveries < 0:
        assert worst is None
    else:
        drawn = [policy.redelivery_delay_ms(n, random) for n in range(1, policy.maximum_redeliveries + 1)]
        assert worst is not None
        assert sum(drawn) <= worst
        if not policy.use_collision_avoidance:
            assert worst == sum(policy.delays_ms(policy.maximum_redeliveries))


def test_worst_case_is_the_sum_without_jitter_at_the_largest_maximum() -> None:
    """A huge maximum is summed in closed form once the delays repeat."""
    policy = RedeliveryPolicy(maximum_redeliveries=2**31 - 1, initial_redelivery_delay=0)
    assert policy.worst_case_ms() == (2**31 - 2) * 1000


def test_slow_growth_has_an_upper_bound_all_the_same() -> None:
    """A chain that grows too slowly to be added up has a finite bound."""
    policy = RedeliveryPolicy(
        maximum_redeliveries=10**9,
        initial_redelivery_delay=3600,
        maximum_redelivery_delay=7200,
        use_exponential_back_off=True,
        back_off_multiplier=1.0000004,
    )
    worst = policy.worst_case_ms()
    assert worst is not None
    assert 10**9 * 3_600_000 < worst <= 10**9 * 7_200_000


def test_saturates_at_the_largest_long() -> None:
    """Exponential growth stops at 2^63-1 as in the Java client, with and without jitter."""
    policy = RedeliveryPolicy(
        maximum_redeliveries=-1, use_exponential_back_off=True, use_collision_avoidance=True
    )
    assert policy.delays_ms(60)[-1] == MAX_LONG
    assert policy.redelivery_delay_ms(10_000) == MAX_LONG
    assert 0 <= policy.redelivery_delay_ms(60, Random(1)) <= MAX_LONG


def test_jitter_may_pass_the_cap_and_the_first_delay_has_none() -> None:
    """Jitter is applied after the cap, and the first redelivery waits for the initial delay without jitter."""
    policy = RedeliveryPolicy(
        use_exponential_back_off=True,
        maximum_redelivery_delay=2,
        use_collision_avoidance=True,
        collision_avoidance_factor=0.5,
    )
    random = Random(3)
    assert {policy.redelivery_delay_ms(1, random) for _ in range(50)} == {1000}
    assert max(policy.redelivery_delay_ms(4, random) for _ in range(200)) > 2000


def test_one_chain_is_drawn_for_delays_ms() -> None:
    """`delays_ms` with a random source is the chain of `next_redelivery_delay_ms` with the same source."""
    policy = RedeliveryPolicy(use_exponential_back_off=True, use_collision_avoidance=True)
    random, chain = Random(5), [1000]
    for _ in range(4):
        chain.append(policy.next_redelivery_delay_ms(chain[-1], random))
    assert policy.delays_ms(5, Random(5)) == chain


@pytest.mark.parametrize("policy", [RedeliveryPolicy(), RedeliveryPolicy.from_delays([1])], ids=repr)
def test_redeliveries_count_from_one(policy: Policy) -> None:
    """There is no delay before redelivery 0."""
    with pytest.raises(ValueError, match="1 or more"):
        policy.redelivery_delay_ms(0)


def test_explicit_delays() -> None:
    """An explicit list is used in order, and its length is the maximum."""
    policy = RedeliveryPolicy.from_delays([1, 5.5, timedelta(minutes=5)])
    assert isinstance(policy, Policy)
    assert policy.maximum_redeliveries == 3
    assert policy.delays_ms(4) == [1000, 5500, 300_000, 300_000]
    assert policy.worst_case_ms() == 306_500
    assert policy.to_options() == {"maximumRedeliveries": "3", "delays": "1000,5500,300000"}
    assert DelayListPolicy([]).delays_ms(2) == [0, 0]


@given(policies)
def test_a_policy_is_a_value(policy: RedeliveryPolicy) -> None:
    """A policy cannot be changed, meets the protocol, and its repr builds an equal one."""
    assert isinstance(policy, Policy)
    assert eval(repr(policy), {"RedeliveryPolicy": RedeliveryPolicy}) == policy
    with pytest.raises(AttributeError):
        policy.maximum_redeliveries = 3  # type: ignore[misc]  # what is tested


def test_a_long_jittered_chain_is_not_walked_once_the_cap_holds() -> None:
    """Under a cap that jitter cannot leave, a late delay takes as few draws as the climb to the cap."""
    policy = RedeliveryPolicy(
        maximum_redeliveries=-1,
        use_exponential_back_off=True,
        maximum_redelivery_delay=60,
        use_collision_avoidance=True,
    )
    draws = CountingRandom(3)
    delays = {policy.redelivery_delay_ms(1_000_000, draws) for _ in range(100)}
    assert draws.count < 100 * 2 * 10
    assert min(delays) >= 51_000
    assert max(delays) <= 69_000
    assert len(delays) > 50

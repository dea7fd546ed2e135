"""Artemis redelivery policy: address-setting rules, to the millisecond."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.for_each import for_each

from redelivery.core.policy.artemis_policy import ArtemisRedeliveryPolicy
from redelivery.core.policy.redelivery_policy import Policy
from redelivery.errors import ConfigurationError

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "vectors" / "artemis_redelivery_delay.json").read_text()
)["vectors"]


def options(vector: dict[str, Any]) -> dict[str, Any]:
    cap = vector["max_redelivery_delay_configured"]
    given_cap = {} if cap is None else {"max-redelivery-delay": cap}
    return {
        "redelivery-delay": vector["redelivery_delay"],
        "redelivery-delay-multiplier": vector["redelivery_delay_multiplier"],
        "redelivery-collision-avoidance-factor": vector["redelivery_collision_avoidance_factor"],
    } | given_cap


def senseless(vector: dict[str, Any]) -> bool:
    """Return True if Artemis accepts a value here that makes no sense."""
    cap = vector["max_redelivery_delay_configured"]
    return vector["redelivery_delay"] < 0 or (cap is not None and cap < 0)


SENSIBLE = [vector for vector in VECTORS if not senseless(vector)]
FIXED = [v for v in SENSIBLE if "delays_ms_by_delivery_count_0_to_8" in v]
RANGES = [v for v in SENSIBLE if "ranges_by_delivery_count" in v]

policies = st.builds(
    ArtemisRedeliveryPolicy,
    redelivery_delay=st.integers(0, 10**6).map(lambda ms: ms / 1000),
    redelivery_delay_multiplier=st.floats(0, 10),
    max_redelivery_delay=st.none() | st.integers(0, 10**7).map(lambda ms: ms / 1000),
    redelivery_collision_avoidance_factor=st.floats(0, 1),
    max_delivery_attempts=st.integers(-1, 40),
)


def test_defaults_are_the_brokers() -> None:
    """No delay, which is not multiplied, varied or capped; a cap of ten delays where there is one; 10 deliveries."""
    policy = ArtemisRedeliveryPolicy()
    assert (policy.redelivery_delay, policy.redelivery_delay_multiplier) == (0, 1.0)
    assert (policy.redelivery_collision_avoidance_factor, policy.max_redelivery_delay) == (0, None)
    assert (policy.max_delivery_attempts, policy.delays_ms(3)) == (10, [0, 0, 0])
    tenfold = ArtemisRedeliveryPolicy(redelivery_delay=5, redelivery_delay_multiplier=20)
    assert tenfold.delays_ms(3) == [5_000, 50_000, 50_000]


@for_each(FIXED)
def test_delays_are_the_brokers_integers(vector: dict[str, Any]) -> None:
    """The delay after each delivery count equals the broker's, to the millisecond."""
    policy = ArtemisRedeliveryPolicy.from_options(options(vector))
    assert policy.delays_ms(8) == vector["delays_ms_by_delivery_count_0_to_8"][1:]


@for_each(RANGES)
def test_jitter_stays_in_the_brokers_bounds(vector: dict[str, Any]) -> None:
    """Randomised delays, including the first, lie in the broker's bounds and, uncapped, cover its range."""
    policy = ArtemisRedeliveryPolicy.from_options(options(vector))
    random = Random(11)
    for step in vector["ranges_by_delivery_count"]:
        draws = [policy.redelivery_delay_ms(step["delivery_count"], random) for _ in range(1000)]
        assert step["bound_lo_ms"] <= min(draws)
        assert max(draws) <= step["bound_hi_ms"]
        spread = step["observed_max_ms"] - step["observed_min_ms"]
        if step["observed_max_ms"] < vector["max_redelivery_delay_effective"]:
            assert max(draws) - min(draws) >= 0.8 * spread - 2


@pytest.mark.parametrize("vector", [v for v in VECTORS if senseless(v)], ids=str)
def test_senseless_values_are_refused(vector: dict[str, Any]) -> None:
    """A negative delay or cap is refused, naming the option."""
    with pytest.raises(ConfigurationError, match="redelivery-delay must be a whole number of milliseconds"):
        ArtemisRedeliveryPolicy.from_options(options(vector))


@pytest.mark.parametrize(("attempts", "redeliveries"), [(10, 9), (1, 0), (0, -1), (-1, -1), (-7, -1)])
def test_attempts_count_deliveries(attempts: int, redeliveries: int) -> None:
    """N attempts are N-1 redeliveries; 0 or less means no limit."""
    policy = ArtemisRedeliveryPolicy(max_delivery_attempts=attempts)
    assert policy.maximum_redeliveries == redeliveries
    assert isinstance(policy, Policy)
    assert (policy.worst_case_ms() is None) is (redeliveries < 0)


@pytest.mark.parametrize(
    ("given_options", "message"),
    [
        ({"redelivery-dealy": 1}, "did you mean 'redelivery-delay'"),
        ({"redelivery-delay": "5s"}, "whole number of milliseconds"),
        ({"redelivery-delay-multiplier": "NaN"}, "number of at least 0"),
        ({"redelivery-collision-avoidance-factor": 1.5}, "from 0 to 1"),
        ({"max-delivery-attempts": "ten"}, "whole number"),
    ],
)
def test_from_options_refuses(given_options: dict[str, Any], message: str) -> None:
    """An unknown element or a value that cannot be honoured is refused."""
    with pytest.raises(ConfigurationError, match=message):
        ArtemisRedeliveryPolicy.from_options(given_options)


@given(policies, st.randoms(use_true_random=False))
def test_properties(policy: ArtemisRedeliveryPolicy, random: Random) -> None:
    """Delays are never negative, never exceed the cap, have a bounded sum, and options round trip."""
    drawn = policy.delays_ms(max(policy.maximum_redeliveries, 5), random)
    assert min(drawn) >= 0
    cap = policy.max_redelivery_delay
    assert max(drawn) <= round((policy.redelivery_delay * 10 if cap is None else cap) * 1000)
    worst = policy.worst_case_ms()
    if worst is not None:
        assert sum(drawn[: policy.maximum_redeliveries]) <= worst
    assert ArtemisRedeliveryPolicy.from_options(policy.to_options()) == policy


def test_worst_case_of_a_huge_maximum() -> None:
    """A huge maximum is summed in closed form, whether the delays grow, stay equal or shrink."""
    many = 2**31 - 1
    constant = ArtemisRedeliveryPolicy(redelivery_delay=1, max_delivery_attempts=many)
    assert constant.worst_case_ms() == (many - 1) * 1000
    growing = ArtemisRedeliveryPolicy(
        redelivery_delay=1, redelivery_delay_multiplier=2, max_delivery_attempts=many
    )
    assert growing.worst_case_ms() == 15_000 + (many - 5) * 10_000
    shrinking = ArtemisRedeliveryPolicy(
        redelivery_delay=1, redelivery_delay_multiplier=0.5, max_delivery_attempts=many
    )
    assert shrinking.worst_case_ms() == 1994

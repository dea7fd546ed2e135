"""Values that a redelivery policy refuses, and the error texts."""

from __future__ import annotations

import math
import time
from datetime import timedelta
from typing import Any, cast

import pytest

from redelivery import SqliteLedger
from redelivery.core.policy.redelivery_policy import RedeliveryPolicy
from redelivery.errors import ConfigurationError


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        ({"maximum_redeliveries": -2}, "maximum_redeliveries"),
        ({"maximum_redeliveries": 2**31}, "maximum_redeliveries"),
        ({"maximum_redeliveries": 3.0}, "maximum_redeliveries"),
        ({"maximum_redeliveries": True}, "maximum_redeliveries"),
        ({"maximum_redeliveries": "6"}, "maximum_redeliveries"),
        ({"initial_redelivery_delay": -0.001}, "initial_redelivery_delay"),
        ({"initial_redelivery_delay": "1"}, "initial_redelivery_delay"),
        ({"initial_redelivery_delay": True}, "initial_redelivery_delay"),
        ({"initial_redelivery_delay": None}, "initial_redelivery_delay"),
        ({"initial_redelivery_delay": 10**16}, "initial_redelivery_delay"),
        ({"redelivery_delay": math.nan}, "redelivery_delay"),
        ({"redelivery_delay": math.inf}, "redelivery_delay"),
        ({"redelivery_delay": timedelta(seconds=-1)}, "redelivery_delay"),
        ({"maximum_redelivery_delay": -1}, "maximum_redelivery_delay"),
        ({"use_exponential_back_off": 1}, "use_exponential_back_off"),
        ({"back_off_multiplier": -0.1}, "back_off_multiplier"),
        ({"back_off_multiplier": math.nan}, "back_off_multiplier"),
        ({"back_off_multiplier": math.inf}, "back_off_multiplier"),
        ({"back_off_multiplier": "2"}, "back_off_multiplier"),
        ({"use_collision_avoidance": "true"}, "use_collision_avoidance"),
        ({"collision_avoidance_factor": 1.01}, "collision_avoidance_factor"),
        ({"collision_avoidance_factor": -0.1}, "collision_avoidance_factor"),
        ({"pre_dispatch_check": None}, "pre_dispatch_check"),
    ],
)
def test_constructor_refuses(arguments: dict[str, Any], option: str) -> None:
    """An argument of the wrong type or range raises ConfigurationError with its name."""
    with pytest.raises(ConfigurationError, match=option) as caught:
        RedeliveryPolicy(**arguments)
    assert caught.value.option == option


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"maximumRedeliverys": 1}, "did you mean 'maximumRedeliveries'"),
        ({"maximumRedeliveries": "4.0"}, "whole number from -1"),
        ({"maximumRedeliveries": ""}, "whole number"),
        ({"maximumRedeliveries": " 4"}, "whole number"),
        ({"maximumRedeliveries": "1_0"}, "whole number"),
        ({"maximumRedeliveries": "٤"}, "whole number"),
        ({"maximumRedeliveries": True}, "whole number"),
        ({"maximumRedeliveries": "2147483648"}, "whole number"),
        ({"redeliveryDelay": "1000ms"}, "whole number of milliseconds"),
        ({"redeliveryDelay": "9223372036854775808"}, "milliseconds"),
        ({"maximumRedeliveryDelay": "-2"}, "milliseconds"),
        ({"backOffMultiplier": "NaN"}, "number of at least 0"),
        ({"backOffMultiplier": "1e999"}, "number of at least 0"),
        ({"useExponentialBackOff": "yes"}, "true or false"),
        ({"useExponentialBackOff": 1}, "true or false"),
        ({"collisionAvoidancePercent": "0.2"}, "whole number from 0 to 100"),
        ({"collisionAvoidancePercent": 101}, "whole number from 0 to 100"),
        ({"collisionAvoidanceFactor": "1.1"}, "from 0 to 1"),
        ({"collisionAvoidanceFactor": "0.1", "collisionAvoidancePercent": "10"}, "same setting"),
        ({"maximumRedeliveries": 1, "MaximumRedeliveries": 2}, "given twice"),
    ],
)
def test_from_options_refuses(options: dict[str, Any], message: str) -> None:
    """An option that is unknown, unconvertible or contradictory is refused with the allowed values."""
    with pytest.raises(ConfigurationError, match=message):
        RedeliveryPolicy.from_options(options)


@pytest.mark.parametrize("delays", ["15", 5, [1, -1], [1, "2"], [math.nan], [True]], ids=repr)
def test_explicit_delays_refuse_what_makes_no_sense(delays: Any) -> None:
    """A list that contains anything but durations is refused."""
    with pytest.raises(ConfigurationError, match="delays"):
        RedeliveryPolicy.from_delays(delays)


def test_numbers_of_many_digits_are_refused() -> None:
    """A number that Python cannot format is refused in one sentence, like any other that is too large."""
    with pytest.raises(ConfigurationError, match="not a number of thousands of digits"):
        RedeliveryPolicy(maximum_redeliveries=10**5000)
    for name in ("back_off_multiplier", "redelivery_delay", "collision_avoidance_factor"):
        with pytest.raises(ConfigurationError, match=f"{name} must be"):
            RedeliveryPolicy(**cast("Any", {name: 10**400}))
    with pytest.raises(ConfigurationError, match="keep must be a number of seconds"):
        SqliteLedger("a.db", keep=10**400)


def test_what_is_nested_too_deep_is_refused() -> None:
    """A value that Python cannot show is refused in one sentence."""
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(ConfigurationError, match="not something nested too deep"):
        RedeliveryPolicy.from_options({"maximumRedeliveries": nested})


def test_a_long_text_is_refused_at_once() -> None:
    """A text of 200,000 digits that is no number is refused in time proportional to its length."""
    start = time.process_time()
    for text in ("9" * 200_000 + "x", "." * 200_000, "9" * 100_000 + "." + "9" * 100_000 + "e"):
        with pytest.raises(ConfigurationError, match="backOffMultiplier must be"):
            RedeliveryPolicy.from_options({"backOffMultiplier": text})
    assert time.process_time() - start < 5

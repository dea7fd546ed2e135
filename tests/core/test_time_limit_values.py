"""Time limit of a policy: its values, and where it is written."""

from __future__ import annotations

import copy
import pickle
from datetime import timedelta
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.model import Letter
from tests.core.test_policy_guard import Index, Own, Unshown, benched, faults

from redelivery.core.commands import Hold
from redelivery.core.policy.policy_guard import LONGEST, elapsed_of
from redelivery.core.policy.redelivery_policy import DelayListPolicy, RedeliveryPolicy, span
from redelivery.errors import ConfigurationError

EVER = RedeliveryPolicy(
    maximum_redeliveries=-1, maximum_elapsed=10, initial_redelivery_delay=4, redelivery_delay=4
)


NO_LIMITS: list[Any] = [
    "5", nan, -inf, -1, 0, 0.0001, True, [], timedelta(0), Unshown(), ValueError("x"), SystemExit(3)
]  # fmt: skip


class Timed(Own):
    """A user's policy with a time limit, or another value in its place."""

    def __init__(self, limit: Any, **options: Any) -> None:
        super().__init__(**options)
        self.limit = limit

    @property
    def maximum_elapsed(self) -> Any:
        return self._answer(self.limit)


@pytest.mark.parametrize("answer", NO_LIMITS, ids=type)
def test_what_is_no_limit_is_a_fault(answer: Any) -> None:
    """The maximum alone ends the redeliveries, and the fault is logged."""
    at = benched(Timed(answer, maximum=1))
    delivery = at.run(Letter(1))
    commands = at.fail(delivery)
    assert isinstance(commands[0], Hold)
    (fault,) = faults(commands)
    assert fault.startswith("maximum_elapsed ")
    assert fault.endswith("; only the maximum of redeliveries applies")


@pytest.mark.parametrize(
    ("answer", "ms"),
    [(None, None), (3, 3000), (0.25, 250), (timedelta(minutes=1), 60_000), (Index(), 7000), (inf, LONGEST * 1000),
     (10**400, LONGEST * 1000)],
    ids=type,
)  # fmt: skip
def test_a_limit_of_a_policy_of_ones_own(answer: Any, ms: int | None) -> None:
    """A limit may be seconds of any type, or a timedelta; None is no limit, and so is a missing attribute."""
    assert elapsed_of(Timed(answer)) == (ms, None)
    assert elapsed_of(Own()) == (None, None)


LIMITED = [
    RedeliveryPolicy(maximum_elapsed=timedelta(hours=1)),
    RedeliveryPolicy.from_delays([1, 5], maximum_elapsed=3600.0),
]


@pytest.mark.parametrize("policy", LIMITED, ids=type)
def test_the_limit_is_a_part_of_the_policy(policy: Any) -> None:
    """The limit is read back in seconds, written in milliseconds, pickled and copied."""
    assert policy.maximum_elapsed == 3600.0
    assert policy.to_options()["maximumElapsed"] == "3600000"
    assert copy.copy(policy) == pickle.loads(pickle.dumps(policy)) == policy
    assert policy not in (RedeliveryPolicy(), RedeliveryPolicy.from_delays([1, 5]))
    assert "maximum_elapsed=3600.0" in repr(policy)


def test_without_a_limit_options_are_the_references() -> None:
    """Without a limit no option is added to those that the Java client reads."""
    assert "maximumElapsed" not in RedeliveryPolicy().to_options()
    assert RedeliveryPolicy().maximum_elapsed is None
    assert RedeliveryPolicy.from_options({"maximumElapsed": "-1"}) == RedeliveryPolicy()


@given(limit=st.integers(1, 2**63 - 1))
def test_options_keep_the_limit_to_the_millisecond(limit: int) -> None:
    """A limit is exact to the millisecond, even beyond the precision of a float."""
    policy = RedeliveryPolicy.from_options({"maximumElapsed": limit})
    assert policy.to_options()["maximumElapsed"] == str(limit)
    assert RedeliveryPolicy.from_options(policy.to_options()) == policy
    assert DelayListPolicy.from_ms([1], limit).to_options()["maximumElapsed"] == str(limit)


@pytest.mark.parametrize(
    ("policy", "worst"),
    [
        (EVER, 10_000),
        (RedeliveryPolicy(maximum_redeliveries=2, maximum_elapsed=10), 2000),
        (RedeliveryPolicy(maximum_redeliveries=100, maximum_elapsed=10), 10_000),
        (RedeliveryPolicy(maximum_redeliveries=-1), None),
        (RedeliveryPolicy.from_delays([1, 5]), 6000),
        (RedeliveryPolicy.from_delays([1, 5], maximum_elapsed=2), 2000),
    ],
)
def test_the_limit_bounds_what_is_waited_in_all(policy: Any, worst: int | None) -> None:
    """The limit is a bound where there is no other one; otherwise the smaller one counts."""
    assert policy.worst_case_ms() == worst


@pytest.mark.parametrize("value", [0, -1, "5", True, timedelta(0), 0.0004, nan])
def test_what_makes_no_sense_is_refused(value: Any) -> None:
    """The error is one sentence with the option's name; 0 is not read as no limit."""
    for make in (RedeliveryPolicy, lambda **options: RedeliveryPolicy.from_delays([1], **options)):
        with pytest.raises(ConfigurationError, match=r"^maximum_elapsed must be a duration of ") as raised:
            make(maximum_elapsed=value)
        assert raised.value.option == "maximum_elapsed"


@pytest.mark.parametrize("value", ["0", "-2", "x", "1.5", 2**63])
def test_what_makes_no_sense_is_refused_in_milliseconds(value: Any) -> None:
    """A limit in milliseconds is refused in the same way."""
    with pytest.raises(ConfigurationError, match=r"^maximumElapsed must be "):
        RedeliveryPolicy.from_options({"maximumElapsed": value})


def test_a_limit_for_people() -> None:
    """A limit is shown in seconds, without trailing zeros."""
    assert [span(ms) for ms in (3_600_000, 250, 1500, 1, 2_592_000_000)] == [
        "3600 s", "0.25 s", "1.5 s", "0.001 s", "2592000 s"
    ]  # fmt: skip

"""Policies made from tenacity's strategies."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from random import Random
from typing import Any

import pytest
import tenacity as t

from redelivery.core.policy.redelivery_policy import Policy, RedeliveryPolicy
from redelivery.errors import ConfigurationError

ATTEMPTS = t.stop_after_attempt(4)
BY_EXCEPTION = (
    t.wait_exception(lambda error: 7.0 if isinstance(error, Exception) else 0.0)
    if hasattr(t, "wait_exception")
    else None
)


def named(value: object) -> str:
    """Return a test's id without an address: the same in each run."""
    return re.sub(r" at 0x\w+", "", str(value))


@pytest.mark.parametrize(
    ("wait", "delays"),
    [
        (t.wait_none(), [0, 0, 0, 0]),
        (t.wait_fixed(2), [2000] * 4),
        (t.wait_exponential(multiplier=0.5, max=3), [500, 1000, 2000, 3000]),
        (t.wait_exponential(min=3, max=6), [3000, 3000, 4000, 6000]),
        (t.wait_incrementing(start=1, increment=2, max=4), [1000, 3000, 4000, 4000]),
        (t.wait_chain(t.wait_fixed(1), t.wait_fixed(5)), [1000, 5000, 5000, 5000]),
        (t.wait_fixed(1) + t.wait_incrementing(0, 1), [1000, 2000, 3000, 4000]),
        (t.wait_random(1, 3), [2000] * 4),
        (t.wait_random_exponential(max=4), [500, 1000, 2000, 2000]),
        (t.wait_exponential_jitter(max=6, jitter=2), [2000, 3000, 5000, 6000]),
        pytest.param(
            BY_EXCEPTION,
            [7000] * 4,
            marks=pytest.mark.skipif(BY_EXCEPTION is None, reason="tenacity has wait_exception since 9.1.3"),
        ),
        (lambda state: state.attempt_number / 10, [100, 200, 300, 400]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_delays_are_what_tenacity_would_wait(wait: Any, delays: list[int]) -> None:
    """Each strategy gives its own waits; a random one without a source gives the middle of its range."""
    policy = RedeliveryPolicy.from_tenacity(wait=wait, stop=ATTEMPTS)
    assert isinstance(policy, Policy)
    assert policy.delays_ms(4) == delays
    assert policy.redelivery_delay_ms(3) == delays[2]


@pytest.mark.parametrize(
    ("stop", "maximum"),
    [
        (t.stop_after_attempt(4), 3),
        (t.stop_after_attempt(1), 0),
        (t.stop_never, -1),
        (t.stop_after_attempt(4) | t.stop_never, 3),
        (t.stop_after_attempt(4) & t.stop_never, -1),
        (t.stop_after_attempt(9) | t.stop_after_delay(4), 2),
        (t.stop_after_attempt(9) & t.stop_after_delay(4), 8),
        (t.stop_after_delay(4), 2),
        (t.stop_before_delay(4), 1),
        (lambda state: state.attempt_number >= 6, 5),
    ],
    ids=named,
)
def test_the_maximum_is_found_by_asking_stop(stop: Any, maximum: int) -> None:
    """N attempts are N-1 redeliveries; the elapsed time is the sum of the waits."""
    policy = RedeliveryPolicy.from_tenacity(wait=t.wait_fixed(2), stop=stop)
    assert policy.maximum_redeliveries == maximum
    assert policy.worst_case_ms() == (None if maximum < 0 else maximum * 2000)


@pytest.mark.parametrize(
    ("wait", "stop", "message"),
    [
        (3, ATTEMPTS, "wait must be a tenacity strategy"),
        (t.wait_fixed, ATTEMPTS, "wait must be a tenacity strategy"),
        (t.wait_fixed(1), None, "stop must be a tenacity strategy"),
        (
            t.wait_fixed(1),
            t.stop_when_event_set(threading.Event()) | ATTEMPTS,
            "cannot be evaluated beforehand",
        ),
        (t.wait_random(1, 3), t.stop_after_delay(10), "depends on the elapsed time"),
        (t.wait_none(), t.stop_after_delay(10), "does not stop within 1000 deliveries"),
        (t.wait_fixed(-1), ATTEMPTS, "wait must be a duration"),
        (lambda state: state.nonsense, ATTEMPTS, "wait failed for redelivery 1"),
        (t.wait_fixed(1), lambda state: state.nonsense, "stop cannot be evaluated"),
        (lambda state: "soon", ATTEMPTS, "wait must be a duration"),
    ],
    ids=named,
)
def test_what_cannot_be_evaluated_is_refused(
    wait: Any, stop: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An object that is no strategy, fails, or depends on more than the count and the waits is refused."""
    monkeypatch.setattr("redelivery.tenacity_policy._LONGEST_WALK", 1000)
    with pytest.raises(ConfigurationError, match=message):
        RedeliveryPolicy.from_tenacity(wait=wait, stop=stop)


def test_random_waits_draw_from_the_given_source() -> None:
    """The same source gives the same delays, and none exceeds the worst case."""
    policy = RedeliveryPolicy.from_tenacity(wait=t.wait_random(1, 3), stop=ATTEMPTS)
    assert policy.delays_ms(3, Random(1)) == policy.delays_ms(3, Random(1))
    assert len(set(policy.delays_ms(20, Random(1)))) > 10
    assert policy.worst_case_ms() == 9000
    assert all(1000 <= delay <= 3000 for delay in policy.delays_ms(50, Random(2)))


def test_tenacity_is_loaded_at_first_use_only() -> None:
    """Importing and using other policies loads no tenacity."""
    code = (
        "from redelivery.core.policy.redelivery_policy import RedeliveryPolicy; "
        "from redelivery.uri.parser import parse_uri; "
        "RedeliveryPolicy.from_delays([1]); parse_uri('stomp://h'); print('tenacity' in sys.modules)"
    )
    path = [entry for entry in sys.path if entry]
    out = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {path!r}; {code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert out.stdout.strip() == "False"

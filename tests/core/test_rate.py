"""Rate limit: tokens that arrive over time, and the engine's dispatches with them."""

from __future__ import annotations

from copy import copy
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.core.bench import Bench
from tests.core.model import Letter

from redelivery.core.breaker import Breaker
from redelivery.core.dispatch_gate import Rate
from redelivery.core.events import Continued, Paused
from redelivery.errors import ConfigurationError


def taken(rate: Rate, seconds: float, step: float = 0.01) -> int:
    """Return how many tokens are taken in a time if one is requested at each step."""
    bucket, found, now = rate.bucket(), 0, 0.0
    while now <= seconds:
        while bucket.has(now):
            bucket.take(now)
            found += 1
        now += step
    return found


@pytest.mark.parametrize(
    ("rate", "most"),
    [
        (Rate(10), 10 + 10 * 10),
        (Rate(10, burst=1), 1 + 10 * 10),
        (Rate(60, per=60), 1 + 10),
        (Rate(60, per=timedelta(minutes=1), burst=5), 5 + 10),
        (Rate(0.5), 1 + 5),
    ],
)
def test_tokens_come_at_the_rate(rate: Rate, most: int) -> None:
    """Ten seconds give a burst and ten seconds' worth of tokens."""
    assert taken(rate, 10.0) in (most - 1, most)


@given(st.floats(0.01, 1e4), st.integers(1, 50), st.lists(st.floats(0, 5), max_size=40))
@example(1.0, 1, [0.0, 0.0])
def test_no_more_than_the_rate_is_given(a_second: float, burst: int, gaps: list[float]) -> None:
    """In any passing of time there are no more tokens than the burst and those that have arrived."""
    bucket, now, found = Rate(a_second, burst=burst).bucket(), 0.0, 0
    for gap in gaps:
        now += gap
        if bucket.has(now):
            bucket.take(now)
            found += 1
        due = bucket.next
        # On a copy, because time does not go back.
        assert due is None or copy(bucket).has(due + 1e-6)
    assert found <= burst + now * a_second + 1e-6


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (lambda: Rate(0), "Rate.messages must be more than 0"),
        (lambda: Rate(True), "Rate.messages must be a number"),
        (lambda: Rate(1, per=0), "Rate.per must be more than 0 seconds"),
        (lambda: Rate(1, burst=0), "Rate.burst must be a whole number from 1"),
    ],
)
def test_a_rate_that_makes_no_sense_is_refused(made: Any, text: str) -> None:
    """Each value is checked by name."""
    with pytest.raises(ConfigurationError, match=text):
        made()


# In the engine.


def test_dispatches_wait_for_the_rate() -> None:
    """Two are dispatched at once, then one each half second; the engine reports when the next one may go."""
    bench = Bench(rate=Rate(2, burst=2))
    bench.arrive(*(Letter(n) for n in range(4)))
    assert [bench.want() is not None for _ in range(3)] == [True, True, False]
    assert bench.engine.load.next_due() == bench.now + 0.5
    assert bench.engine.load.ready() == 0
    bench.now += 0.5
    assert [bench.want() is not None for _ in range(2)] == [True, False]


def test_redeliveries_count() -> None:
    """A redelivery that is due waits for the rate as a fresh message does."""
    bench = Bench(rate=Rate(1, burst=1))
    bench.fail(bench.run(Letter(0)))
    bench.arrive(Letter(1))
    bench.now += 60
    assert bench.want() is not None
    assert bench.want() is None
    assert bench.engine.load.next_due() == bench.now + 1
    bench.now += 1
    assert bench.want() is not None


def test_a_limit_of_rate_keeps_no_redelivery_waiting() -> None:
    """Redeliveries that are due alternate with fresh messages, also if each dispatch waits for the rate."""
    bench = Bench(rate=Rate(1, burst=1))
    bad = bench.run(Letter(0))
    bench.fail(bad)
    bench.arrive(*(Letter(n) for n in range(1, 10)))
    bench.now += 61
    for _ in range(3):
        found = bench.want()
        if found is bad:
            return
        bench.now += 1
    raise AssertionError("the redelivery is starved")


def test_a_rate_and_a_breaker_hold_together() -> None:
    """While the breaker is open the next dispatch waits for the probe, or for the rate if that is later."""
    bench = Bench(rate=Rate(0.1, burst=1), breaker=Breaker(failures=1, messages=1))
    bench.fail(bench.run(Letter(0)))
    bench.arrive(Letter(1))
    assert bench.engine.load.next_due() == bench.now + 10
    bench.now += 5
    assert bench.want() is None
    bench.now += 5
    assert bench.want() is not None
    assert bench.engine.load.breaker_state == "probing"


def test_a_pause_and_a_rate_hold_together() -> None:
    """A pause has no end of its own; after it the rate limit applies."""
    bench = Bench(rate=Rate(1, burst=1))
    bench.arrive(Letter(0), Letter(1), Letter(2))
    bench.want()
    bench.feed(Paused())
    bench.now += 10
    assert bench.want() is None
    assert bench.engine.load.next_due() is None
    bench.feed(Continued())
    assert [bench.want() is not None for _ in range(2)] == [True, False]

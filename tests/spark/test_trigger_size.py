"""Size of batches: how long one waits to become larger, in virtual time."""

from __future__ import annotations

import pytest

from redelivery.testing import ManualClock
from redelivery_spark.stream.trigger_size import TriggerSize


def asked(least: int | None = None, longest: float = 0.3) -> tuple[ManualClock, TriggerSize]:
    """Return the clock and the decider, just asked for a batch."""
    clock = ManualClock()
    size = TriggerSize(clock, least, longest)
    size.begin()
    return clock, size


def test_a_first_batch_waits_for_nothing() -> None:
    """A first batch does not wait: no rate is known."""
    _, size = asked()

    assert size.enough(1)


def test_at_a_thousand_a_second_nothing_waits() -> None:
    """At 1,000 rows a second a batch does not wait: it could hardly grow."""
    clock, size = asked()
    for _ in range(5):
        clock.advance(0.15)
        size.gave(150)
        size.begin()

    assert size.enough(1)


def test_at_a_high_rate_a_batch_waits_for_what_the_rate_promises() -> None:
    """At a high rate a batch waits for as many rows as arrive in the longest wait, and no longer."""
    clock, size = asked()
    clock.advance(1.0)
    size.gave(20_000)
    size.begin()

    assert not size.enough(5_999)
    assert size.enough(6_000)
    clock.advance(0.2)
    assert not size.enough(100)
    assert size.left() == pytest.approx(0.1)
    clock.advance(0.11)
    assert size.enough(100)
    assert size.left() == 0.0


def test_a_minimum_of_rows_takes_the_place_of_the_rate() -> None:
    """A minimum of rows replaces the rate: a batch waits for it from the first one on, and no longer than the longest
    wait.
    """
    clock, size = asked(least=50, longest=2.0)

    assert not size.enough(49)
    assert size.enough(50)
    clock.advance(2.0)
    assert size.enough(1)


def test_a_rate_that_falls_is_forgotten() -> None:
    """A batch after a quiet time does not wait again."""
    clock, size = asked()
    clock.advance(1.0)
    size.gave(20_000)
    clock.advance(60.0)
    size.gave(100)
    size.begin()

    assert size.enough(1)

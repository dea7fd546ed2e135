"""Durations that each thread counts for itself, and the values of labels."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

import pytest
from tests.tiers import amount

from redelivery.prometheus.metrics import HandledMessages, LabelValues

if TYPE_CHECKING:
    from collections.abc import Iterator

THREADS, TIMES = 8, amount(quick=300, ci=2000, full=2000)


@pytest.fixture
def hasty() -> Iterator[None]:
    """Make threads switch as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def in_threads(handled: HandledMessages, threads: int, times: int) -> list[threading.Thread]:
    """Start threads that count."""

    def count() -> None:
        for number in range(times):
            handled.buckets("a", "").observe(0.001)
            handled.buckets(f"q{number % 7}", "ValueError").observe(20.0)

    found = [threading.Thread(target=count) for _ in range(threads)]
    for each in found:
        each.start()
    return found


@pytest.mark.usefixtures("hasty")
def test_no_count_is_lost() -> None:
    """No count of several threads is lost, and no total is lower than the one before."""
    handled = HandledMessages(threading.RLock(), LabelValues(5), LabelValues(5))
    threads = in_threads(handled, THREADS, TIMES)
    before = 0
    while any(each.is_alive() for each in threads):
        now = sum(each.counted for each in handled.totals().values())
        assert now >= before
        before = now
    totals = handled.totals()
    assert totals["a", ""].counts[0] == totals["a", ""].counted == THREADS * TIMES
    failed = {series: each.counted for series, each in totals.items() if series[1] == "ValueError"}
    assert sum(failed.values()) == THREADS * TIMES
    assert {destination for destination, _ in failed} == {"q0", "q1", "q2", "q3", "other"}


def test_threads_that_have_ended_are_not_kept() -> None:
    """Counts of ended threads are added up: a program may have a thread for each request."""
    handled = HandledMessages(threading.RLock(), LabelValues(5), LabelValues(5))
    for _ in range(20):
        for each in in_threads(handled, 1, 1):
            each.join()
    assert len(handled._threads) <= 2
    assert handled.totals()["a", ""].counted == 20
    assert handled._threads == []


def test_a_value_can_be_encoded_and_is_short() -> None:
    """A label value is short, and without lone surrogates, which would fail the whole scrape."""
    values = LabelValues(2)
    assert values.of("a\ud800b") == "a?b"
    assert values.of("x" * 1000) == "x" * 200
    assert values.of("c") == "other"
    assert (values.of("a\ud800b"), values.known("c")) == ("a?b", False)


def test_destinations_past_the_limit_are_not_kept() -> None:
    """A thread looks up as many destinations as there are labels: a program may use a new name for each answer."""
    handled = HandledMessages(threading.RLock(), LabelValues(1), LabelValues(1))
    for number in range(5):
        handled.buckets(f"q{number}", "").observe(1.0)
    assert handled.local.mine is not None
    assert list(handled.local.mine.succeeded) == ["q0"]
    assert {series: each.counted for series, each in handled.totals().items()} == {
        ("q0", ""): 1,
        ("other", ""): 4,
    }

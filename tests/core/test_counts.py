"""Counters of a report: each dispatch counts once, and no dead letter twice."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.core.bench import CAUSE, NATIVE, Bench
from tests.core.model import Letter

from redelivery.core.capabilities import Capabilities
from redelivery.core.commands import Accept, Credit, Forward
from redelivery.core.events import Confirmed, Deferred, Drained, Poisoned, Released
from redelivery.core.policy.redelivery_policy import RedeliveryPolicy
from redelivery.core.report import Counters, Report


def test_each_result_while_draining_counts_once() -> None:
    """A message that fails, is deferred or is released after the drain began counts by its result alone."""
    bench = Bench()
    failed, deferred, released, _waiting = bench.arrive(*(Letter(n) for n in range(4)))
    for _ in range(3):
        bench.want()
    bench.feed(Drained())
    bench.fail(failed)
    bench.feed(Deferred(deferred, 5.0, CAUSE))
    bench.feed(Released(released))
    bench.arrive(Letter(4))
    counts = bench.engine.state.counts
    assert (counts.redelivered, counts.deferred, counts.released) == (1, 1, 3)  # one arrived later


def test_a_stale_result_counts_as_stale_alone() -> None:
    """A late release or deferral, while the message's copy is here, counts as stale only."""
    for event in (Released, lambda delivery: Deferred(delivery, 5.0, CAUSE)):
        bench = Bench()
        letter = Letter(0)
        old = bench.run(letter)
        bench.lose()
        bench.connect()
        bench.again(letter)
        bench.feed(event(old))
        counts = bench.engine.state.counts
        assert (counts.stale, counts.released, counts.deferred) == (1, 0, 0)


def test_a_copy_that_is_confirmed_twice_is_one_dead_letter() -> None:
    """A copy that is confirmed twice, because its original's acknowledgement was lost, counts as one dead letter."""
    bench = Bench(able=Capabilities("model", forward="confirmed"))
    letter = Letter(0)
    poison = bench.run(letter)
    bench.feed(Poisoned(poison, CAUSE))
    bench.feed(Confirmed(poison))
    bench.lose()
    bench.connect()
    again = bench.again(letter)
    assert isinstance(bench.commands[0], Forward)
    assert isinstance(bench.feed(Confirmed(again))[0], Accept)
    assert (bench.engine.state.counts.poisoned, bench.engine.state.counts.deduplicated) == (1, 1)


def test_a_confirmation_that_is_lost_is_not_counted() -> None:
    """A dead letter counts when it is confirmed; with a lost answer, only if its message is redelivered."""
    bench = Bench()
    letter = Letter(0)
    bench.feed(Poisoned(bench.run(letter), CAUSE))
    bench.lose()
    bench.connect()
    assert bench.engine.state.counts.poisoned == 0
    bench.feed(Confirmed(bench.again(letter)))
    assert bench.engine.state.counts.poisoned == 1


def test_a_report_sums_up() -> None:
    """The report of a connection includes every counter of every consumer."""
    counts = [Counters(), Counters()]
    for name in Counters.__slots__:
        for each in counts:
            setattr(each, name, 2)
    assert Report.of(counts, running=1) == Report(running=1, **dict.fromkeys(Counters.__slots__, 4))


@pytest.mark.parametrize(("maximum", "count"), [(-1, 7), (0, 0), (3, 3), (9, 7)])
def test_a_brokers_count_is_taken_up_to_the_maximum(maximum: int, count: int) -> None:
    """A broker's count is used up to the maximum: it never poisons a message before a dispatch."""
    policy = RedeliveryPolicy(maximum_redeliveries=maximum)
    bench = Bench(policy=policy, able=replace(NATIVE, counts=True))
    delivery = bench.run(Letter(0, attempts=7))
    assert delivery.record is not None
    assert delivery.record.count == count


def test_credit_is_withdrawn_once() -> None:
    """A second drain withdraws no credit that the first has withdrawn already."""
    bench = Bench(able=replace(NATIVE, flow=True), credit=10)
    first, second = (bench.feed(Drained())[0] for _ in range(2))
    assert isinstance(first, Credit)
    assert isinstance(second, Credit)
    assert first.messages < 0
    assert second.messages == 0


def test_a_lost_release_is_not_charged() -> None:
    """A release that is lost with the connection is not charged, although the broker counts the delivery."""
    bench = Bench(able=replace(NATIVE, counts=True))
    letter = Letter(0)
    bench.feed(Released(bench.run(letter)))
    bench.lose()
    bench.connect()
    assert bench.again(letter).record is not None
    delivery = bench.want()
    assert delivery is not None
    bench.fail(delivery)
    assert delivery.record is not None
    assert delivery.record.count == 1

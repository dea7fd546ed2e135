"""Poison acknowledgements that the broker refuses or does not answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.core.bench import CAUSE, CONFIRMED_FORWARD, NATIVE, NOTHING, Bench
from tests.core.model import Letter

from redelivery.core.commands import PoisonAck, Unanswered
from redelivery.core.events import Confirmed, Poisoned, Tick
from redelivery.errors import AdapterError

if TYPE_CHECKING:
    from redelivery.core.capabilities import Capabilities


def test_refused_poison_is_tried_again_with_back_off() -> None:
    """A refused poison acknowledgement is tried again after 1, 2, 4 … at most 30 seconds, until it is confirmed."""
    bench = Bench()
    delivery = bench.run(Letter(0))
    bench.feed(Poisoned(delivery, CAUSE))
    waits = []
    for _ in range(7):
        bench.feed(Confirmed(delivery, AdapterError("full")))
        began = bench.now
        while not (commands := bench.feed(Tick())):
            alarm = bench.engine.next_alarm()
            assert alarm is not None
            bench.now = alarm
        assert isinstance(commands[0], PoisonAck)
        waits.append(bench.now - began)
    assert waits == [1, 2, 4, 8, 16, 30, 30]
    assert bench.engine.load.parked == 1
    bench.feed(Confirmed(delivery))
    assert (bench.engine.load.parked, bench.engine.state.counts.poisoned, delivery.state) == (0, 1, "settled")


@pytest.mark.parametrize("able", [NATIVE, CONFIRMED_FORWARD], ids=["poison", "forward"])
def test_poison_that_is_refused_at_once_is_tried_once_each_time(able: Capabilities) -> None:
    """A refusal at the same time as the try, by a coarse clock, does not double the next try."""
    bench = Bench(able=able)
    delivery = bench.run(Letter(0))
    bench.feed(Poisoned(delivery, CAUSE))
    for _ in range(12):
        bench.feed(Confirmed(delivery, AdapterError("full")))
        alarm = bench.engine.next_alarm()
        assert alarm is not None
        bench.now = max(bench.now, alarm)
        while not (commands := bench.feed(Tick())):
            bench.now = bench.engine.next_alarm() or 0.0
        assert len(commands) == 1


@pytest.mark.parametrize("able", [NATIVE, CONFIRMED_FORWARD], ids=["poison", "forward"])
def test_unanswered_poison_is_not_sent_twice_over_one_connection(able: Capabilities) -> None:
    """A poison acknowledgement without an answer for 30 s is reported once, and settled when the answer arrives."""
    bench = Bench(able=able)
    delivery = bench.run(Letter(0))
    bench.feed(Poisoned(delivery, CAUSE))
    bench.now += 29
    assert bench.feed(Tick()) == NOTHING
    bench.now += 1
    assert bench.feed(Tick()) == [Unanswered(delivery, 30.0)]
    assert bench.engine.next_alarm() is None
    bench.now += 3600
    assert bench.feed(Tick()) == NOTHING
    assert (bench.engine.load.in_doubt, bench.engine.load.parked) == (1, 1)
    bench.feed(Confirmed(delivery))
    assert (bench.engine.load.in_doubt, bench.engine.state.counts.poisoned, delivery.state) == (
        0,
        1,
        "settled",
    )


def test_unanswered_poison_is_sent_again_over_the_next_connection() -> None:
    """A message without an answer when its connection was lost is poisoned at its redelivery, without a handler."""
    bench = Bench()
    bench.feed(Poisoned(bench.run(Letter(0)), CAUSE))
    bench.now += 60
    bench.feed(Tick())
    bench.lose()
    bench.connect()
    bench.arrive(Letter(0, attempts=1))
    assert [type(command) for command in bench.commands] == [PoisonAck]

"""A broker that limits how long a consumer may keep a message: deferrals stay within the limit."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.core.bench import CAUSE, NATIVE, Bench
from tests.core.model import Letter

from redelivery.core.commands import Hold, Release
from redelivery.core.events import Deferred

if TYPE_CHECKING:
    from tests.core.model import Arrival

    from redelivery.core.capabilities import Capabilities
    from redelivery.core.commands import Command


def held(able: Capabilities, *delays: float) -> list[Command]:
    """Defer a message several times; return the commands of the last deferral."""
    bench = Bench(able=able)
    delivery: Arrival | None = bench.run(Letter(0))
    commands: list[Command] = []
    for delay in delays:
        assert delivery is not None
        commands = bench.feed(Deferred(delivery, delay, CAUSE))
        bench.now += delay
        delivery = bench.want()
    return commands


def test_a_deferral_is_no_longer_than_the_broker_lets_it_be() -> None:
    """A deferral longer than 80 % of the broker's limit ends early; without a limit it takes its time."""
    (hold,) = held(replace(NATIVE, max_hold=100.0), 500.0)
    assert isinstance(hold, Hold)
    assert hold.delay == 80.0
    (hold,) = held(NATIVE, 500.0)
    assert isinstance(hold, Hold)
    assert hold.delay == 500.0


def test_deferrals_that_are_too_long_together() -> None:
    """A message whose deferrals are too long together is released in between, and parked for the rest afterwards."""
    for able in (replace(NATIVE, max_hold=100.0), replace(NATIVE, max_hold=100.0, release=False), NATIVE):
        (last,) = held(able, 50.0, 31.0)
        assert isinstance(last, Release if able.max_hold and able.release else Hold)
    (last,) = held(replace(NATIVE, max_hold=100.0), 50.0, 30.0)
    assert isinstance(last, Hold)


def test_what_was_given_back_in_the_middle_of_a_delay_goes_on_with_it() -> None:
    """A message keeps its due time and its count over the release; the broker's time starts again."""
    bench = Bench(able=replace(NATIVE, max_hold=100.0))
    letter = Letter(0)
    delivery = bench.run(letter)
    for delay in (60.0, 10.0):
        bench.feed(Deferred(delivery, delay, CAUSE))
        bench.now += delay
        assert bench.want() is delivery
    (release,) = bench.fail(delivery)
    assert isinstance(release, Release)
    assert delivery.outcome == "redelivered"
    bench.now += 20
    again = bench.again(letter)
    (hold,) = bench.commands
    assert isinstance(hold, Hold)
    assert (hold.delay, hold.count, again.state) == (40.0, 1, "parked")
    bench.now += 40
    assert bench.want() is again
    (hold,) = bench.feed(Deferred(again, 40.0, CAUSE))
    assert isinstance(hold, Hold)
    bench.now += 40
    assert bench.want() is again
    (release,) = bench.feed(Deferred(again, 0.5, CAUSE))
    assert isinstance(release, Release)


def test_a_new_delivery_may_be_held_for_as_long_again() -> None:
    """A new delivery may be parked for the whole limit again."""
    bench = Bench(able=replace(NATIVE, max_hold=100.0))
    letter = Letter(0)
    bench.feed(Deferred(bench.run(letter), 50.0, CAUSE))
    bench.lose()
    bench.now += 50
    bench.connect()
    again = bench.again(letter)
    assert bench.want() is again
    (hold,) = bench.feed(Deferred(again, 80.0, CAUSE))
    assert isinstance(hold, Hold)


def test_a_group_does_not_wait_for_what_was_given_back() -> None:
    """The next message of a group may run after one was released: the broker may give that one to any consumer."""
    bench = Bench(able=replace(NATIVE, max_hold=100.0), ordering="per_group")
    first, second = bench.arrive(Letter(0, "g"), Letter(1, "g"))
    for delay in (50.0, 50.0):
        assert bench.want() is first
        bench.feed(Deferred(first, delay, CAUSE))
        bench.now += delay
    assert bench.want() is second

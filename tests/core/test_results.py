"""Effects of each result of a dispatch, while the connection stands."""

from __future__ import annotations

from datetime import timedelta
from random import Random

import pytest
from tests.core.bench import CAUSE, CONFIRMED_FORWARD, NATIVE, NOTHING, Bench, routed
from tests.core.model import WALL_OFFSET, Letter

from redelivery.core.capabilities import Capabilities
from redelivery.core.commands import Accept, Forward, Hold, PoisonAck, Release, Stop
from redelivery.core.dead_lettering.routing import DeadLetterRouting
from redelivery.core.delivery import Cause
from redelivery.core.events import (
    Confirmed,
    Deferred,
    Discarded,
    Drained,
    Failed,
    Poisoned,
    Released,
    Succeeded,
)
from redelivery.core.policy.redelivery_policy import RedeliveryPolicy

BY_FLOW = Capabilities("model", release=True, flow=True)


def test_success_is_accepted() -> None:
    """A delivery that succeeded is accepted once, and its body is dropped."""
    bench = Bench()
    delivery = bench.run(Letter(0))
    (accept,) = bench.succeed(delivery)
    assert isinstance(accept, Accept)
    assert list(accept.deliveries) == [delivery]
    assert (delivery.outcome, delivery.state, delivery.body) == ("accepted", "settled", b"")
    assert bench.succeed(delivery) == NOTHING
    assert bench.engine.state.counts.accepted == 1


def test_discard_is_accepted_and_counted() -> None:
    """A discarded delivery is accepted, and counts as discarded."""
    bench = Bench()
    delivery = bench.run(Letter(0))
    (accept,) = bench.feed(Discarded(delivery, CAUSE))
    assert isinstance(accept, Accept)
    assert delivery.outcome == "discarded"
    assert (bench.engine.state.counts.accepted, bench.engine.state.counts.discarded) == (0, 1)


def test_failures_follow_the_policy() -> None:
    """Each failure is charged and delayed by the policy, to the millisecond; the last one is poison."""
    policy = RedeliveryPolicy(
        maximum_redeliveries=3,
        initial_redelivery_delay=timedelta(hours=1),
        redelivery_delay=10.0,
        use_exponential_back_off=True,
        back_off_multiplier=3.0,
    )
    bench = Bench(policy=policy)
    delivery = bench.run(Letter(0))
    for count, delay in enumerate(policy.delays_ms(3), start=1):
        (hold,) = bench.fail(delivery)
        assert isinstance(hold, Hold)
        assert (hold.count, hold.delay, hold.due) == (count, delay / 1000, bench.now + delay / 1000)
        bench.now = hold.due - 0.001
        assert bench.want() is None
        bench.now = hold.due
        assert bench.want() is delivery
    (poison,) = bench.fail(delivery)
    assert isinstance(poison, PoisonAck)
    assert (poison.count, poison.cause) == (4, CAUSE)
    assert delivery.outcome == "poisoned"


def test_jitter_comes_from_the_random_source() -> None:
    """Collision avoidance draws from the engine's random source: the same seed gives the same delays."""
    policy = RedeliveryPolicy(redelivery_delay=100.0, use_collision_avoidance=True)

    def due(seed: int) -> float:
        bench = Bench(policy=policy, random=Random(seed))
        delivery = bench.run(Letter(0))
        bench.fail(delivery)  # its delay has no jitter
        bench.now += 1
        bench.want()
        (hold,) = bench.fail(delivery)
        assert isinstance(hold, Hold)
        return hold.delay

    assert due(1) == due(1)
    assert due(1) != due(2)
    assert 85 <= due(3) <= 115


def test_a_classifiers_policy_overrides() -> None:
    """A policy that is part of the failure is used instead of the destination's."""
    bench = Bench()
    delivery = bench.run(Letter(0))
    (poison,) = bench.feed(Failed(delivery, CAUSE, RedeliveryPolicy(maximum_redeliveries=0)))
    assert isinstance(poison, PoisonAck)


def test_poison_now() -> None:
    """A message that the application poisons is dead-lettered at once, whatever its policy allows."""
    bench = Bench()
    delivery = bench.run(Letter(0))
    (poison,) = bench.feed(Poisoned(delivery, Cause("bad format")))
    assert isinstance(poison, PoisonAck)
    assert poison.cause.text == "bad format"


def test_deferral_is_not_charged_until_there_are_too_many() -> None:
    """A deferred message is parked uncharged; above the maximum of deferrals each one is a failure."""
    bench = Bench(maximum_deferrals=2)
    delivery = bench.run(Letter(0))
    for _ in range(2):
        (hold,) = bench.feed(Deferred(delivery, 5.0, CAUSE))
        assert isinstance(hold, Hold)
        assert (hold.delay, hold.count, hold.deferred, delivery.outcome) == (5.0, 0, True, "deferred")
        bench.now += 5
        assert bench.want() is delivery
    (hold,) = bench.feed(Deferred(delivery, 5.0, CAUSE))
    assert isinstance(hold, Hold)
    assert (hold.delay, hold.count, hold.deferred, delivery.outcome) == (60.0, 1, False, "redelivered")
    assert (bench.engine.state.counts.deferred, bench.engine.state.counts.redelivered) == (2, 1)


def test_release_gives_back() -> None:
    """A released delivery goes back to the broker if it can take it, uncharged."""
    bench = Bench()
    delivery = bench.run(Letter(0))
    (release,) = bench.feed(Released(delivery))
    assert isinstance(release, Release)
    assert (delivery.outcome, delivery.record) == ("released", None)


def test_release_is_held_where_the_broker_has_none() -> None:
    """Where the broker has no release, the delivery stays here, counts as parked, and is not dispatched."""
    bench = Bench(able=Capabilities("model"))
    delivery = bench.run(Letter(0))
    assert bench.feed(Released(delivery)) == NOTHING
    assert (delivery.state, bench.engine.load.parked) == ("held", 1)
    bench.now += 1_000_000
    assert bench.want() is None


@pytest.mark.parametrize("ordering", ["non_blocking", "blocking", "per_group"])
def test_what_is_held_for_a_release_stops_nothing(ordering: str) -> None:
    """The first released message makes room for fresh ones, and is dispatched again when nothing else is ready."""
    bench = Bench(able=Capabilities("model"), max_parked=3, ordering=ordering)
    arrivals = bench.arrive(*(Letter(number) for number in range(5)))
    for number in range(5):
        delivery = bench.want()
        assert delivery is arrivals[number]
        bench.feed(Released(delivery))
        assert bench.engine.load.parked <= 3
    assert (bench.want(), bench.engine.load.ready()) == (None, 0), "no message is dispatched in a loop"
    for again in (arrivals[0], arrivals[1]):
        assert bench.engine.load.next_due() == bench.now + 1.0
        bench.now += 1.0
        assert bench.want() is again
        bench.feed(Released(again))
        assert (bench.want(), bench.engine.load.ready()) == (None, 0)
    for number, again in ((5, arrivals[2]), (6, arrivals[3])):
        (fresh,) = bench.arrive(Letter(number))
        assert bench.want() is fresh
        bench.succeed(fresh)
        assert bench.engine.load.ready() > 0
        assert bench.want() is again
        assert again.record is None
        bench.feed(Released(again))
        assert (bench.want(), bench.engine.load.parked) == (None, 3)
    for _ in range(6):
        bench.arrive(Letter(7))
        for delivery in iter(bench.want, None):
            bench.succeed(delivery)
    assert [each.state for each in arrivals].count("settled") == 3
    assert bench.engine.load.parked == 2, "with room, these stay until the consumer closes"


def test_what_is_held_for_a_release_makes_way_for_several() -> None:
    """If more messages were released at once than may be parked, each fresh one is still dispatched."""
    bench = Bench(able=Capabilities("model"), max_parked=2)
    held = [bench.run(Letter(number)) for number in range(6)]
    for each in held:
        bench.feed(Released(each))
    (fresh,) = bench.arrive(Letter(6))
    assert bench.want() is fresh


def test_expired_is_poison_and_not_dispatched() -> None:
    """A message that expired before its dispatch is dead-lettered with cause `expired`, uncounted."""
    bench = Bench()
    bench.arrive(Letter(0, expires_at=WALL_OFFSET + bench.now + 1))
    bench.now += 1
    assert bench.want() is None
    (poison,) = bench.commands
    assert isinstance(poison, PoisonAck)
    assert (poison.cause.text, poison.count) == ("expired", 0)


def test_expired_is_dropped_if_so_configured() -> None:
    """With process_expired=False an expired message is accepted, and counts as discarded."""
    bench = Bench(dead_letters=routed(process_expired=False))
    bench.arrive(Letter(0, expires_at=WALL_OFFSET))
    assert bench.want() is None
    assert isinstance(bench.commands[0], Accept)
    assert bench.engine.state.counts.discarded == 1


def test_credit_bounds_what_runs() -> None:
    """The application never has more unsettled messages than its credit."""
    bench = Bench(credit=1)
    first, second = bench.arrive(Letter(0), Letter(1))
    assert bench.want() is first
    assert bench.engine.load.exhausted
    assert bench.want() is None
    bench.succeed(first)
    assert bench.want() is second


def test_max_parked_bounds_what_waits() -> None:
    """With max_parked messages parked no fresh one is dispatched; the parked ones still are."""
    bench = Bench(max_parked=1)
    first, second = bench.arrive(Letter(0), Letter(1))
    bench.want()
    bench.fail(first)
    assert bench.want() is None
    bench.now += 60
    assert bench.want() is first
    assert bench.want() is second


def test_broker_count_raises_ours_up_to_the_maximum() -> None:
    """A count from the broker is the start of the count, but never poisons a message before a dispatch."""
    bench = Bench(able=Capabilities("model", counts=True))
    low, high = Letter(0, attempts=2), Letter(1, attempts=50)
    for letter, count in ((low, 2), (high, 3)):
        delivery = bench.run(letter)
        assert delivery.record is not None
        assert delivery.record.count == count


def test_forwarded_copy_is_accepted_after_it_is_confirmed() -> None:
    """Where copy and accept are not one transaction, the original is accepted after the copy is confirmed."""
    bench = Bench(able=CONFIRMED_FORWARD)
    delivery = bench.run(Letter(0))
    (forward,) = bench.feed(Poisoned(delivery, CAUSE))
    assert isinstance(forward, Forward)
    assert forward.copy.headers["redeliveryCause"] == CAUSE.text
    (accept,) = bench.feed(Confirmed(delivery))
    assert isinstance(accept, Accept)
    assert bench.feed(Confirmed(delivery)) == NOTHING


def test_partial_body_stops_rather_than_loses() -> None:
    """A body that did not arrive whole is neither copied nor lost: the consumer stops and the message stays."""
    bench = Bench(able=CONFIRMED_FORWARD, dead_letters=DeadLetterRouting(maximum_set_aside=0))
    delivery = bench.run(Letter(0, partial=True))
    (stop,) = bench.feed(Poisoned(delivery, CAUSE))
    assert isinstance(stop, Stop)
    assert "AMQP" in str(stop.error)
    bench.arrive(Letter(1))
    assert bench.want() is None


def test_drained_gives_back_what_waits() -> None:
    """Draining releases ready and parked messages, dispatches nothing more, and lets running handlers finish."""
    bench = Bench(able=BY_FLOW)
    running, parked, ready = bench.arrive(Letter(0), Letter(1), Letter(2))
    bench.want()
    bench.want()
    bench.fail(parked)
    released = [d for c in bench.feed(Drained()) if isinstance(c, Release) for d in c.deliveries]
    assert set(released) == {parked, ready}
    assert bench.want() is None
    assert isinstance(bench.succeed(running)[0], Accept)
    bench.arrive(Letter(3))
    assert [type(command) for command in bench.commands] == [Release]


def test_drained_keeps_what_would_come_again_at_once() -> None:
    """Where the window is fixed, messages stay here until the consumer closes: a release would bring them back."""
    bench = Bench(able=NATIVE)
    running, (ready,) = bench.run(Letter(0)), bench.arrive(Letter(1))
    assert (bench.feed(Drained()), bench.feed(Released(running))) == (NOTHING, NOTHING)
    assert {ready.state, running.state} == {"held"}


def test_failure_while_draining_is_charged_and_given_back() -> None:
    """A message whose handler fails after the drain began is charged and released."""
    bench = Bench(able=BY_FLOW)
    delivery = bench.run(Letter(0))
    bench.feed(Drained())
    (release,) = bench.fail(delivery)
    assert isinstance(release, Release)
    assert delivery.outcome == "redelivered"


@pytest.mark.parametrize("result", [Succeeded, Released])
def test_a_second_result_changes_nothing(result: type[Succeeded | Released]) -> None:
    """Only the first result of a dispatch counts."""
    bench = Bench(able=NATIVE)
    delivery = bench.run(Letter(0))
    bench.fail(delivery)
    assert bench.feed(result(delivery)) == NOTHING
    assert delivery.outcome == "redelivered"

"""The engine while its breaker is open or it is paused: credit, releases, crash suspects, time limits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.core.bench import CAUSE, NATIVE, Bench
from tests.core.model import WALL_OFFSET, Arrival, Letter

from redelivery.core.breaker import Breaker, Circuit
from redelivery.core.commands import BreakerChanged, Clear, Credit, Release
from redelivery.core.delivery import Record
from redelivery.core.events import (
    Arrived,
    ConnectionLost,
    Continued,
    Deferred,
    Discarded,
    Failed,
    Known,
    Paused,
    Poisoned,
    Released,
    Tick,
    Wanted,
)
from redelivery.core.ledger_entry import Entry
from redelivery.core.message_history import MessageHistory
from redelivery.core.policy.redelivery_policy import RedeliveryPolicy
from redelivery.errors import TransportError

FLOW = replace(NATIVE, flow=True)
ONE = Breaker(failures=1, messages=1, named=1)
COUNTED = replace(FLOW, release_counts=True)


def opened(many: int = 3, **options: Any) -> tuple[Bench, list[Arrival]]:
    """Return an engine whose breaker has just opened over the first of some messages."""
    bench = Bench(**{"able": FLOW, "breaker": ONE, **options})
    arrivals = bench.arrive(*(Letter(n) for n in range(many)))
    assert bench.want() is arrivals[0]
    bench.commands = bench.fail(arrivals[0])
    return bench, arrivals


def released(commands: list[Any]) -> list[int]:
    return [number for c in commands if isinstance(c, Release) for number in numbers(c)]


def numbers(command: Release) -> list[int]:
    return [each.letter.number for each in command.deliveries if isinstance(each, Arrival)]


def granted(commands: list[Any]) -> list[int]:
    return [c.messages for c in commands if isinstance(c, Credit)]


def test_credit_is_withdrawn_and_fresh_messages_are_released_but_one() -> None:
    """Fresh messages are released except one, the next probe; released ones are counted."""
    bench, _ = opened(credit=8)
    assert granted(bench.commands) == [-5]
    assert released(bench.commands) == [2]
    assert bench.engine.state.counts.released == 1


def test_where_a_release_counts_nothing_is_given_back() -> None:
    """Where a release is counted by the broker, only the credit is withdrawn."""
    bench, _ = opened(able=COUNTED, credit=8)
    assert granted(bench.commands) == [-5]
    assert released(bench.commands) == []


@pytest.mark.parametrize("ordering", ["blocking", "per_group"])
def test_where_an_order_is_kept_nothing_is_given_back(ordering: str) -> None:
    """Where an order is kept nothing is released: the messages after a parked one stay behind it."""
    bench = Bench(able=FLOW, breaker=ONE, ordering=ordering, credit=8)
    arrivals = bench.arrive(*(Letter(n) for n in range(3)))
    bench.want()
    commands = bench.feed(Failed(arrivals[0], CAUSE, weight="outage"))
    assert bench.engine.load.breaker_state == "open"
    assert released(commands) == []


def test_what_was_on_its_way_is_given_back() -> None:
    """Messages that arrive after the credit was withdrawn are released, and no credit is granted for them twice."""
    bench, _ = opened(credit=8)
    late = [Arrival(Letter(n), bench.epoch, counts=False) for n in (7, 8)]
    commands = bench.feed(Arrived(1, late))
    assert released(commands) == [7, 8]
    assert granted(commands) == []
    # One message is here: no credit until it is tried.
    bench.now += 2
    assert bench.want() is not None
    assert granted(bench.commands) == [1]


def test_credit_is_granted_again_when_it_has_closed() -> None:
    """After the ramp the whole credit is granted again."""
    bench, arrivals = opened(many=2, credit=8, breaker=Breaker(failures=1, messages=1, ramp=1))
    bench.now += 2
    probe = bench.want()
    assert probe is arrivals[1]
    commands = bench.succeed(probe)
    assert bench.engine.load.breaker_state == "closed"
    out = bench.engine.state.flow._granted - bench.engine.state.flow.arrived
    assert granted(commands)
    # One message is parked: it uses none of the credit.
    assert out == 8


def test_as_many_are_asked_for_as_the_next_round_may_try() -> None:
    """After a round of one that failed, credit for four untried messages is there, and they are tried."""
    bench, arrivals = opened(many=2, credit=100)
    bench.now += 2
    assert bench.want() is arrivals[1]
    asked = granted(bench.commands)
    asked += granted(bench.fail(arrivals[1]))
    assert sum(asked) == 4
    bench.arrive(*(Letter(n) for n in range(2, 6)))
    bench.now += 3
    assert all(bench.want() is not None for _ in range(4))


def test_a_pause_withdraws_all_and_ends_with_all() -> None:
    """A pause releases all fresh messages; its end grants the whole credit."""
    bench = Bench(able=FLOW, credit=8)
    bench.arrive(Letter(0), Letter(1))
    commands = bench.feed(Paused())
    assert (granted(commands), released(commands)) == ([-6], [0, 1])
    assert bench.want() is None
    commands = bench.feed(Continued())
    assert granted(commands) == [8]


@pytest.mark.parametrize("event", [Poisoned, Discarded, Released, Deferred])
def test_a_probe_that_proves_nothing_makes_room_at_once(event: Any) -> None:
    """After a probe that is dead-lettered, discarded, released or deferred, another message is tried at once."""
    bench, _ = opened(able=NATIVE)
    bench.now += 2
    probe = bench.want()
    details = {Poisoned: (CAUSE,), Discarded: (CAUSE,), Released: (), Deferred: (1.0, CAUSE)}[event]
    bench.feed(event(probe, *details))
    assert bench.engine.load.breaker_state == "open"
    assert bench.want() is not None


def test_a_probe_that_the_ledger_does_not_let_begin_makes_room() -> None:
    """With a ledger, a message that must wait for another process's delay is no probe."""
    bench = Bench(able=NATIVE, breaker=ONE, counted=True)
    arrivals = bench.arrive(*(Letter(n) for n in range(3)))
    bench.feed(Wanted())
    bench.feed(Known(arrivals[0], None))
    bench.fail(arrivals[0])
    bench.now += 2
    bench.feed(Wanted())
    bench.feed(Known(arrivals[1], Entry(count=1, last=bench.now + WALL_OFFSET)))
    assert bench.engine.load.breaker_state == "open"
    bench.feed(Wanted())
    assert arrivals[2].state == "running"


def test_time_that_the_breaker_keeps_a_message_is_no_time_of_its_limit() -> None:
    """A policy's time limit counts only while the breaker is closed."""
    policy = RedeliveryPolicy(
        maximum_redeliveries=-1, initial_redelivery_delay=1, redelivery_delay=1, maximum_elapsed=10
    )
    bench = Bench(able=NATIVE, breaker=Breaker(failures=2, messages=1, ramp=1), policy=policy)
    bad, other = bench.arrive(Letter(0), Letter(1))
    for each in (bad, other):
        bench.want()
        bench.fail(each)
    assert bench.engine.load.breaker_state == "open"
    bench.now += 100
    (good,) = bench.arrive(Letter(2))
    assert bench.want() is good
    bench.succeed(good)
    assert bench.want() is bad
    bench.fail(bad)
    assert bad.record is not None
    assert (bad.state, bad.record.count, bad.record.idle) == ("parked", 2, 100.0)
    bench.now += 9.5
    assert bench.want() is other
    assert bench.want() is bad
    bench.fail(bad)
    assert bad.state == "settling"


def test_a_change_says_what_has_opened_it() -> None:
    """The log command has the number of failures, of different messages, and the time until the next probe."""
    bench = Bench(able=NATIVE, breaker=Breaker(failures=3, messages=2))
    first, second = bench.arrive(Letter(0), Letter(1))
    for each in (first, second):
        bench.want()
        bench.fail(each)
    bench.now += 60
    again = bench.want()
    assert again is first
    (change,) = [c for c in bench.fail(again) if isinstance(c, BreakerChanged)]
    assert (change.old, change.new, change.failures, change.messages) == ("closed", "open", 3, 2)
    assert (change.delay, change.spared, change.cause) == (1.0, 1, CAUSE)


class Keyless(Arrival):
    """Delivery of a broker that gives no id."""

    @property
    def key(self) -> None:
        return None


def without_id(bench: Bench, letter: Letter, body: bytes = b"body") -> Keyless:
    """Make a message without an id arrive."""
    keyless = Keyless(letter, bench.epoch, counts=False)
    keyless.body = body
    bench.feed(Arrived(1, [keyless]))
    return keyless


def test_a_message_without_an_id_keeps_its_record_over_a_release() -> None:
    """Beyond the broker's time limit a spared message is released, and known again by its bytes, once."""
    bench, letter = Bench(able=replace(FLOW, max_hold=60.0), breaker=Breaker()), Letter(0)
    keyless = without_id(bench, letter)
    bench.want()
    commands = bench.feed(Failed(keyless, CAUSE, weight="outage"))
    assert (released(commands), keyless.outcome) == ([0], "spared")
    assert without_id(bench, letter).record is None, "it is not marked as redelivered"
    letter.attempts += 1
    assert without_id(bench, letter, b"other").record is None
    assert without_id(bench, letter).record is keyless.record
    assert without_id(bench, letter).record is None


def test_uncharged_tries_count_over_consumers() -> None:
    """In a program with a consumer for each request, all consumers' successes are evidence, and all tries count."""
    history, letter, spared = MessageHistory(), Letter(0), 0
    for number in range(60):
        bench = Bench(breaker=Breaker(uncharged=5))
        bench.now += 1000.0 * number
        bench.engine.state.share(history)
        bad = bench.again(letter) if number else bench.arrive(letter)[0]
        (good,) = bench.arrive(Letter(1 + number))
        for _ in range(2):
            taken = bench.want()
            assert taken is not None
            if taken is bad:
                bench.feed(Failed(bad, CAUSE, weight="outage"))
                spared += bad.outcome == "spared"
            else:
                bench.succeed(good)
        if bad.state == "settling":
            break
        bench.feed(ConnectionLost(bench.epoch, TransportError("closed"), closed=True))
    # The first one, which was beside no success, and five more; then it is charged as the policy says.
    assert (spared, bad.state) == (6, "settling")


def test_late_successes_are_evidence() -> None:
    """A success that is reported after its connection is lost counts, though no consumer has accepted the message."""
    bench = Bench(breaker=Breaker(uncharged=1))
    good, bad = bench.arrive(Letter(0), Letter(1))
    for each in (good, bad):
        assert bench.want() is each
    bench.feed(Failed(bad, CAUSE, weight="outage"))
    bench.lose()
    bench.connect()
    bench.succeed(good)
    bad = bench.again(bad.letter)
    bench.now += 60
    assert bench.want() is bad
    bench.feed(Failed(bad, CAUSE, weight="outage"))
    assert bad.record is not None
    assert (bad.outcome, bad.record.uncharged) == ("spared", 1)


@pytest.mark.parametrize("event", [Poisoned, Discarded])
def test_it_closes_when_nothing_is_left_that_was_tried(event: Any) -> None:
    """The breaker keeps nothing once each message that failed has come to an end."""
    bench, (bad, other) = opened(2, able=NATIVE)
    bench.now += 2
    assert bench.want() is other
    bench.feed(event(other, CAUSE))
    assert bench.engine.load.breaker_state == "open"
    assert bench.want() is bad
    commands = bench.feed(event(bad, CAUSE))
    assert [c.new for c in commands if isinstance(c, BreakerChanged)] == ["closed"]
    assert bench.engine.load.open_for(bench.now) is None


def test_the_ledger_writes_down_no_failure_that_is_spared() -> None:
    """A spared failure clears the mark of the attempt, and leaves the ledger entry unchanged."""
    bench = Bench(able=NATIVE, breaker=ONE, counted=True)
    (arrival,) = bench.arrive(Letter(0))
    bench.feed(Wanted())
    bench.feed(Known(arrival, Entry(count=1, last=bench.now + WALL_OFFSET - 600)))
    clear, *_ = bench.fail(arrival)
    assert isinstance(clear, Clear)
    assert clear.entry is not None
    assert (clear.entry.count, clear.failed) == (1, False)


def test_the_credit_holds_in_the_ramp() -> None:
    """The ramp never allows more running messages than the credit."""
    bench, arrivals = opened(many=4, credit=1, able=NATIVE)
    bench.now += 2
    probe = bench.want()
    assert probe is arrivals[1]
    bench.succeed(probe)
    assert bench.engine.load.breaker_state == "ramp"
    assert [bench.want() is not None for _ in range(2)] == [True, False]


def test_what_another_consumer_saw_fail_is_not_at_fault_here() -> None:
    """Failures at another consumer are no evidence against a message at this consumer's breaker."""
    here, there = Circuit(Breaker(failures=2, messages=1)), Circuit(Breaker(failures=2, messages=1))
    moved, other = Arrival(Letter(0), 1, counts=False), Arrival(Letter(1), 1, counts=False)
    moved.record, other.record = Record(), Record()
    there.failed(moved, moved.record, "outage", 1.0)
    here.failed(other, other.record, "maybe", 1.0)
    here.succeeded(Arrival(Letter(2), 1, counts=False), 2.0, ())
    assert here.failed(moved, moved.record, "outage", 3.0)


def test_after_ten_returns_that_a_queue_may_count_it_is_open_for_too_long() -> None:
    """After ten releases that a queue may count the breaker closes: the broker would drop the messages later."""
    able = replace(NATIVE, max_hold=60.0, release_counts=True)
    bench = Bench(
        able=able, breaker=Breaker(failures=1, messages=1, probe=600, maximum_probe=600, maximum_unnamed=9000)
    )
    (bad,) = bench.arrive(Letter(0))
    bench.want()
    bench.fail(bad)
    for _ in range(10):
        bench.now += 48
        bench.feed(Tick())
        bad = bench.again(Letter(0))
    bench.now += 600
    assert bench.want() is bad
    bench.fail(bad)
    assert bad.record is not None
    assert (bench.engine.load.breaker_state, bad.record.count) == ("closed", 1)


def test_nothing_is_asked_for_in_vain_while_all_room_is_taken() -> None:
    """With one more parked than allowed, a fresh message waits until a parked one is due; the engine reports that."""
    bench = Bench(able=NATIVE, breaker=ONE, max_parked=1)
    bad, behind, _ = bench.arrive(Letter(0), Letter(1), Letter(2))
    bench.want()
    bench.fail(bad)
    bench.now += 1
    for each in (behind, bad):
        assert bench.want() is each
        bench.feed(Deferred(each, 600.0, CAUSE))
    assert bench.want() is None
    assert bench.engine.load.next_due() == bench.now + 600

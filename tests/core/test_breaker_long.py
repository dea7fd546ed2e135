"""The breaker over hours: many bad messages, a consumer for each request, lost connections, brokers with limits."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.core.bench import CAUSE, NATIVE, Bench
from tests.core.breaker_world import BreakerWorld, Mail
from tests.core.model import Arrival, Letter

from redelivery.core.breaker import Breaker, Circuit
from redelivery.core.delivery import Delivery, Record
from redelivery.core.events import Arrived, Deferred, Discarded, Failed
from redelivery.core.message_history import MessageHistory
from redelivery.core.report import Counters

if TYPE_CHECKING:
    from redelivery.core.commands import Command

# A broker that takes a message back after so many seconds, and counts each release.
COUNTED = {"release": True, "grows": True, "release_counts": True, "max_hold": 180.0}
BEHIND = {"at": 0, "names": "g1..g20"}


class World(BreakerWorld):
    """Notes when each message was accepted."""

    def __init__(self, scenario: dict[str, Any]) -> None:
        super().__init__(scenario)
        self.accepted_at: dict[str, float] = {}

    def carry_out(self, command: Command) -> None:
        many = len(self.done)
        super().carry_out(command)
        self.accepted_at.update(dict.fromkeys(self.done[many:], self.now))

    def say(self, what: str, *details: Any) -> None:
        """Keep no log."""


def played(messages: list[dict[str, Any]], handler: list[dict[str, Any]], **rest: Any) -> World:
    world = World({"messages": messages, "handler": handler, "until": 3 * 3600, **rest})
    world.run()
    return world


class Nameless(Arrival):
    """Delivery without an id; notes how often that is looked up."""

    looked_up = 0

    @property
    def key(self) -> None:
        Nameless.looked_up += 1


def nameless(bench: Bench, letter: Letter) -> Nameless:
    found = Nameless(letter, bench.epoch, counts=False)
    bench.feed(Arrived(1, [found]))
    return found


def test_named_failures_that_follow_each_other_keep_no_good_message_here() -> None:
    """Fewer than half of the room are named, but more than 200 in a row: a good message is 11 minutes late at most."""
    bad = [("b1..b215", "maybe"), ("b216..b400", "outage"), ("b401..b600", "maybe")]
    handler = [{"names": names, "result": result} for names, result in bad]
    rules = {"failures": 20, "messages": 10}
    world = played(
        [{"at": 0, "names": "b1..b600"}, BEHIND], handler, breaker=rules, consumer={"maxParked": 400}
    )
    assert len(world.accepted_at) == 20
    assert max(world.accepted_at.values()) < 660


def test_of_as_many_failures_as_may_be_parked_most_must_be_named() -> None:
    """A rotation of tries goes round what is parked: named failures that follow each other are no majority of that."""
    breaker = Circuit(Breaker(failures=1, messages=1, maximum_unnamed=60), 1000)
    for number in range(700):
        each, weight = Mail(1, f"m{number}", None, redelivered=False), "maybe" if number < 400 else "outage"
        assert breaker.failed(each, Record(), weight, 1.0) or number == 0  # type: ignore[arg-type]
    assert not breaker.is_down(2.0)


def test_what_is_deferred_while_it_is_closed_counts_as_unnamed() -> None:
    """After the longest time, a few named failures among many deferred messages do not open the breaker again."""
    bench = Bench(breaker=Breaker(failures=1, messages=1, named=2, maximum_unnamed=60))
    (bad,) = bench.arrive(Letter(0))
    assert bench.want() is bad
    bench.fail(bad)
    bench.now += 61
    assert bench.want() is bad
    bench.fail(bad)
    for number in range(1, 20):
        each = bench.run(Letter(number))
        deferred = number <= 10
        bench.feed(Deferred(each, 900.0, CAUSE) if deferred else Failed(each, CAUSE, weight="outage"))
    assert bench.engine.load.breaker_state == "closed"


@pytest.mark.parametrize("keyed", [True, False])
def test_no_message_is_released_until_the_broker_drops_it(*, keyed: bool) -> None:
    """Where the broker counts releases, no message is released as often as it allows, by whichever rule it waits."""
    bad = [{"names": "u1..u40", "result": "maybe"}, {"names": "n1", "result": "outage"}]
    rules = {"failures": 20, "messages": 10}
    messages = [{"at": 0, "names": "u1..u40 n1"}]
    world = played(messages, bad, breaker=rules, capabilities=COUNTED, keyed=keyed)
    assert len(world.dead) == 41
    assert max(Counter(world.back).values()) <= 12


@pytest.mark.parametrize("keyed", [True, False])
def test_a_message_that_is_deferred_for_long_is_released_ten_times_at_most(*, keyed: bool) -> None:
    """A message whose deferrals last longer than the broker allows is dead-lettered before the broker drops it."""
    handler = [{"names": "d1", "result": "defer", "delay": 180.0}]
    world = played([{"at": 0, "names": "d1"}], handler, capabilities=COUNTED, keyed=keyed)
    assert (world.dead, len(world.back)) == (["d1"], 10)


@pytest.mark.parametrize("until", [700.0, 1440.0])
@pytest.mark.parametrize("many", [1, 40])
@pytest.mark.parametrize("keyed", [True, False])
def test_an_outage_and_deferrals_release_a_message_twenty_times_at_most(
    *, keyed: bool, many: int, until: float
) -> None:
    """Releases by the breaker and for long deferrals are one count: the broker drops a message after 20."""
    handler = [
        {"result": "outage", "to": until},
        {"result": "defer", "delay": 180.0},
    ]
    world = played([{"at": 0, "names": f"d1..d{many}"}], handler, capabilities=COUNTED, keyed=keyed)
    assert len(world.dead) == many
    assert 10 < max(Counter(world.back).values()) <= 20


def test_the_longest_time_is_that_of_ten_releases() -> None:
    """Where the broker counts releases, the breaker is open no longer than ten times what a message may be held."""
    able = replace(NATIVE, max_hold=60.0, release_counts=True)
    bench = Bench(able=able, breaker=Breaker(named=1, probe=1.0, maximum_probe=1.0))
    bad = bench.run(Letter(0))
    bench.feed(Failed(bad, CAUSE, weight="outage"))
    for state, seconds in (("open", 478), ("closed", 2)):
        bench.now += seconds
        assert bench.want() is bad
        bench.feed(Failed(bad, CAUSE, weight="outage"))
        assert bench.engine.load.breaker_state == state


def test_a_cut_connection_does_not_close_it() -> None:
    """Messages that were tried before the connection was lost come back: a decision about another one ends nothing."""
    bench = Bench(breaker=Breaker(failures=1, messages=1))
    bench.fail(bench.run(Letter(0)))
    bench.lose()
    bench.connect()
    bench.now += 2
    bench.feed(Discarded(bench.run(Letter(1)), CAUSE))
    assert bench.engine.load.breaker_state == "open"


def test_a_released_message_without_an_id_does_not_close_it() -> None:
    """A message without an id that was released comes back, too."""
    able = replace(NATIVE, max_hold=60.0)
    bench = Bench(able=able, breaker=Breaker(failures=1, messages=1, probe=90, maximum_probe=90))
    bad = nameless(bench, Letter(0))
    assert bench.want() is bad
    bench.fail(bad)
    assert bad.state == "settled"
    bench.now += 90
    bench.feed(Discarded(bench.run(Letter(1)), CAUSE))
    assert bench.engine.load.breaker_state == "open"


@pytest.mark.parametrize("weight", ["outage", "maybe"])
def test_a_message_without_an_id_is_known_to_the_next_consumer(weight: str) -> None:
    """A program with a consumer for each request charges a bad message without an id as its policy says."""
    messages = [{"at": 0, "names": "b1"}, *({"at": 20 * n, "names": f"g{n}"} for n in range(540))]
    able = {"flow": True, "release": True, "release_counts": True}
    handler = [{"names": "b1", "result": weight}]
    world = played(messages, handler, capabilities=able, keyed=False, renews=2)
    assert (world.dead, world.charges["b1"]) == (["b1"], 7)


def test_each_consumer_of_a_request_tries_a_good_message_first() -> None:
    """A program with a consumer for each result handles the good messages behind two bad ones with slow handlers."""
    handler = [{"names": "b1..b2", "result": "outage", "seconds": 5.0}]
    able = {"flow": True, "release": True}
    world = played([{"at": 0, "names": "b1..b2"}, BEHIND], handler, capabilities=able, renews=1)
    assert len(world.accepted_at) == 20


def test_the_memory_of_a_consumer_that_has_closed_is_taken_over() -> None:
    """Records without an id go on, and so does the evidence that other messages have succeeded since a failure."""
    old, new, counts = MessageHistory(), MessageHistory(), Counters()
    for history in (old, new):
        history.source.join(counts)
    record, here = Record(1), Circuit(Breaker(), source=new.source)
    each = Mail(1, "m1", None, redelivered=True, keyed=False)
    record.failed_first = old.source, 0
    counts.accepted = 1
    old.source.released(each, record)
    assert len(old) == 1
    new.absorb(old)
    assert new.source.known(each, 0.0) is record
    here.failed(each, record, "outage", 1.0)
    assert record.uncharged == 1


def test_messages_that_arrive_first_are_not_looked_up() -> None:
    """While a message without an id is remembered, only redelivered ones are compared with it."""
    bench, looked_up = Bench(breaker=Breaker()), Nameless.looked_up
    bench.engine.state.history.source.released(Mail(1, "m1", None, redelivered=False, keyed=False), Record())
    nameless(bench, Letter(0))
    assert Nameless.looked_up == looked_up
    nameless(bench, Letter(1, attempts=1))
    assert Nameless.looked_up > looked_up


def failed_at(record: Record, now: float) -> None:
    record.last_failure = now


def spared_at(record: Record, now: float) -> None:
    record.failed_at = None, now


def due_at(record: Record, now: float) -> None:
    record.due = now


@pytest.mark.parametrize("happened", [failed_at, spared_at, due_at])
def test_a_message_without_an_id_is_forgotten_after_an_hour(happened: Any) -> None:
    """An hour after its last failure, or after it was due, equal bytes are those of another message."""
    source, record = MessageHistory().source, Record(5)
    happened(record, 100.0)
    each = Mail(1, "refresh1", None, redelivered=True, keyed=False)
    for now, found in ((3700.0, record), (3701.0, None)):
        source.released(each, record)
        assert source.known(each, now) is found
    assert source.empty


def test_a_late_discard_is_no_success() -> None:
    """A message that is discarded after its connection is lost is no evidence against others."""
    bench = Bench(breaker=Breaker())
    each = bench.run(Letter(0))
    bench.lose()
    bench.feed(Discarded(each, CAUSE))
    assert bench.engine.state.history.source.successes == 0


def test_a_memory_that_is_switched_off_keeps_no_message_without_an_id() -> None:
    """With the history switched off, messages without an id are not remembered either."""
    history, each = MessageHistory(), Mail(1, "m1", None, redelivered=True, keyed=False)
    history.stop()
    history.source.released(each, Record(3))
    assert history.source.known(each, 0.0) is None


def test_a_consumer_that_is_to_stop_charges_nothing_before() -> None:
    """With `stop`, an unnamed failure among named ones is not charged after the shorter time."""
    rules = Breaker(failures=1, messages=1, maximum_unnamed=60, maximum_open=600, at_maximum="stop")
    for breaker, charged in ((Circuit(rules), False), (Circuit(replace(rules, at_maximum="charge")), True)):
        for number in range(9):
            breaker.failed(Delivery(1, number, b""), Record(), "outage", 1.0)
        assert breaker.is_down(61.0)
        assert breaker.failed(Delivery(1, 9, b""), Record(), "maybe", 61.0) != charged

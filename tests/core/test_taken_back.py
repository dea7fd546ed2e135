"""Deliveries that the broker takes back over a connection that stands: known, stale, and never settled any more."""

from __future__ import annotations

from itertools import permutations

import pytest
from tests.core.bench import NATIVE, Bench
from tests.core.model import Letter

from redelivery.core.broker_redelivery import BrokerRedelivery
from redelivery.core.capabilities import Capabilities
from redelivery.core.commands import (
    Accept,
    AcceptUnseen,
    Credit,
    Hold,
    PoisonAck,
    Reschedule,
    TookBack,
)
from redelivery.core.dead_lettering.routing import DeadLetterRouting
from redelivery.core.events import Alone, Confirmed, Known, Released, TakenBack, Wanted
from redelivery.core.ledger_entry import Entry

FLOWING = Capabilities("model", poison_persistent=True, release=True, flow=True, max_hold=1800.0)


def test_a_parked_message_goes_on_where_it_was_when_it_comes_again() -> None:
    """Its count and its due time stay; nothing is settled for the delivery that the broker has taken back."""
    bench = Bench()
    letter = Letter(1)
    first = bench.run(letter)
    bench.fail(first)
    assert bench.feed(TakenBack(1, [first])) == [TookBack(1, 0, None)]
    assert first.state == "lost"
    assert bench.engine.load.parked == 0
    bench.now += 20.0
    second = bench.again(letter)
    assert bench.want() is None
    bench.now += 40.0
    assert bench.want() is second
    assert second.record is not None
    assert second.record.count == 1


def test_the_late_success_of_a_handler_accepts_the_copy_that_has_waited_for_it() -> None:
    """The message is not handled twice at the same time, and not again."""
    bench = Bench()
    letter = Letter(1)
    first = bench.run(letter)
    assert bench.feed(TakenBack(1, [first])) == [TookBack(1, 1, None)]
    second = bench.again(letter)
    assert second.state == "waiting"
    assert bench.want() is None
    commands = bench.succeed(first)
    assert [type(command) for command in commands] == [Accept, AcceptUnseen]
    assert isinstance(commands[0], Accept)
    assert commands[0].deliveries == (second,)
    assert first.outcome == "stale"


def test_the_late_failure_of_a_handler_is_charged_to_the_copy() -> None:
    """It waits for its redelivery as it would have without the broker's limit."""
    bench = Bench()
    letter = Letter(1)
    first = bench.run(letter)
    bench.feed(TakenBack(1, [first]))
    second = bench.again(letter)
    (hold,) = bench.fail(first)
    assert isinstance(hold, Hold)
    assert (hold.delivery, hold.count, hold.delay) == (second, 1, 60.0)


def test_a_late_result_of_a_message_that_went_elsewhere_yields_no_command() -> None:
    """Its delivery belongs to nobody here."""
    bench = Bench()
    first = bench.run(Letter(1))
    bench.feed(TakenBack(1, [first]))
    assert bench.succeed(first) == []
    assert bench.engine.counts.stale == 1


@pytest.mark.parametrize("ordering", ["non_blocking", "blocking", "per_group"])
def test_the_others_keep_their_order(ordering: str) -> None:
    """Whichever of three ready messages are taken back, the rest is dispatched as it came."""
    for gone in (chosen for size in (1, 2) for chosen in permutations(range(3), size)):
        bench = Bench(ordering=ordering)
        arrivals = bench.arrive(Letter(1, group="g"), Letter(2, group="g"), Letter(3, group="h"))
        bench.feed(TakenBack(1, [arrivals[at] for at in gone]))
        found = []
        while (delivery := bench.want()) is not None:
            found.append(delivery)
            bench.succeed(delivery)
        assert found == [each for at, each in enumerate(arrivals) if at not in gone]


@pytest.mark.parametrize("ordering", ["non_blocking", "blocking", "per_group"])
def test_what_is_parked_waits_on_when_another_message_is_taken_back(ordering: str) -> None:
    """Until its own time, in its own place."""
    bench = Bench(ordering=ordering)
    parked = bench.run(Letter(1, group="g"))
    bench.fail(parked)
    (other,) = bench.arrive(Letter(2, group="h"))
    bench.feed(TakenBack(1, [other]))
    assert (parked.state, bench.engine.load.parked) == ("parked", 1)
    assert bench.want() is None
    bench.now += 59.0
    assert bench.want() is None
    bench.now += 1.0
    assert bench.want() is parked


def test_a_group_waits_for_its_crash_suspect_when_another_message_is_taken_back() -> None:
    """The suspect waits for its turn alone, and leads its group."""
    bench = Bench(able=FLOWING, ordering="per_group", counted=True)
    suspect, _, other = bench.arrive(Letter(1, group="g"), Letter(2, group="g"), Letter(3, group="h"))
    bench.feed(Wanted())
    bench.feed(Known(suspect, Entry(suspect=True)))
    bench.feed(TakenBack(1, [other]))
    assert bench.engine.load.suspects == 1
    assert bench.feed(Wanted()) == []


@pytest.mark.parametrize("ordering", ["blocking", "per_group"])
def test_what_follows_a_running_message_waits_on_when_another_one_is_taken_back(ordering: str) -> None:
    """Until its handler has ended: a group is handled in order, and so is a queue."""
    bench = Bench(ordering=ordering)
    running, following, other = bench.arrive(Letter(1, group="g"), Letter(2, group="g"), Letter(3, group="h"))
    assert bench.want() is running
    bench.feed(TakenBack(1, [other]))
    if ordering == "per_group":
        assert bench.want() is None
    bench.fail(running)
    assert bench.want() is None
    bench.now += 60.0
    assert bench.want() is running
    bench.succeed(running)
    assert bench.want() is following


def test_a_crash_suspect_that_was_taken_back_does_not_begin() -> None:
    """It is another consumer's, or comes again."""
    bench = Bench(able=FLOWING, counted=True)
    (suspect,) = bench.arrive(Letter(1))
    bench.feed(Wanted())
    bench.feed(Known(suspect, Entry(suspect=True)))
    bench.feed(TakenBack(1, [suspect]))
    assert (suspect.state, bench.engine.load.suspects) == ("lost", 0)
    assert bench.feed(Alone()) == []


def test_what_was_released_here_and_taken_back_is_not_begun_again() -> None:
    """Where a broker takes nothing back on request, it may do so itself."""
    bench = Bench(able=Capabilities("model", poison_persistent=True))
    released = bench.run(Letter(1))
    bench.feed(Released(released))
    assert released.state == "held"
    bench.feed(TakenBack(1, [released]))
    for _ in range(3):
        bench.now += 60.0
        assert bench.want() is None
    assert bench.engine.load.parked == 0


def test_the_credit_of_what_was_taken_back_is_free_again() -> None:
    """Whether it was ready, running or parked: the broker may send as many more."""
    bench = Bench(able=FLOWING, credit=4)
    assert bench.commands == [Credit(1, 4)]
    arrivals = bench.arrive(*(Letter(number) for number in range(4)))
    assert bench.want() is arrivals[0]
    assert bench.want() is arrivals[1]
    bench.fail(arrivals[1])
    commands = bench.feed(TakenBack(1, arrivals))
    assert commands[0] == TookBack(4, 1, 1800.0)
    granted = [command.messages for command in [*bench.commands, *commands] if isinstance(command, Credit)]
    assert sum(granted) >= 3, "the parked one had its credit back before"


def test_a_dead_letter_under_way_is_made_again_when_its_message_comes_again() -> None:
    """Its verdict stays; the answer to the first one is about a delivery that nobody has any more."""
    bench = Bench(able=NATIVE)
    letter = Letter(1)
    for _ in range(4):
        delivery = bench.want() or bench.run(letter)
        commands = bench.fail(delivery)
        bench.now += 60.0
    assert isinstance(commands[0], PoisonAck)
    bench.feed(TakenBack(1, [delivery]))
    assert bench.feed(Confirmed(delivery)) == []
    again = bench.again(letter)
    assert isinstance(bench.commands[0], PoisonAck)
    assert bench.commands[0].delivery is again


@pytest.mark.parametrize("result", ["succeed", "fail"])
def test_a_late_result_while_there_is_no_connection_yields_no_command(result: str) -> None:
    """The broker has taken it back, and then the connection was lost: it is stale, as without the loss."""
    bench = Bench()
    letter = Letter(1)
    first = bench.run(letter)
    bench.feed(TakenBack(1, [first]))
    bench.lose()
    assert getattr(bench, result)(first) == []
    assert (first.outcome, bench.engine.counts.stale, bench.engine.load.parked) == ("stale", 1, 0)
    bench.connect()
    second = bench.again(letter)
    assert second.record is None or second.record.count == (result == "fail")


def test_what_was_to_wait_and_was_taken_back_before_that_was_written_waits() -> None:
    """The adapter has settled it already, so the broker does not learn of the wait: it is given back once more."""
    ways = BrokerRedelivery("queue://orders", "run")
    able = Capabilities("model", reschedule="native", release=True, counts=True)
    bench = Bench(able=able, dead_letters=DeadLetterRouting(scheduled=True), rescheduling=ways)
    letter = Letter(1)
    first = bench.run(letter)
    (command,) = bench.fail(first)
    assert isinstance(command, Reschedule)
    assert bench.feed(TakenBack(1, [first])) == []
    bench.again(letter)
    (again,) = bench.commands
    assert isinstance(again, Reschedule)
    assert (again.due, again.count) == (command.due, 1)


def test_what_was_taken_back_over_a_connection_that_is_gone_changes_nothing() -> None:
    """The loss has let go of it before."""
    bench = Bench(able=FLOWING, credit=4)
    first = bench.run(Letter(1))
    bench.lose()
    bench.connect()
    assert bench.feed(TakenBack(1, [first])) == []
    assert first.epoch == 1
    assert bench.engine._flow.settled == 0


def test_what_is_settled_is_settled() -> None:
    """A release that crosses an accept on the wire changes nothing here."""
    bench = Bench()
    delivery = bench.run(Letter(1))
    bench.succeed(delivery)
    assert bench.feed(TakenBack(1, [delivery])) == []

"""Deliveries that the broker takes back over a connection that stands: remembered, stale, and never settled."""

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
    """A message keeps its count and due time; no command is sent for the delivery that was taken back."""
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
    """The message is accepted after its handler's late success, and never handled twice."""
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
    """The message is parked for its redelivery as without the broker's limit."""
    bench = Bench()
    letter = Letter(1)
    first = bench.run(letter)
    bench.feed(TakenBack(1, [first]))
    second = bench.again(letter)
    (hold,) = bench.fail(first)
    assert isinstance(hold, Hold)
    assert (hold.delivery, hold.count, hold.delay) == (second, 1, 60.0)


def test_a_late_result_of_a_message_that_went_elsewhere_yields_no_command() -> None:
    """A late result for a message that another process has got yields no command."""
    bench = Bench()
    first = bench.run(Letter(1))
    bench.feed(TakenBack(1, [first]))
    assert bench.succeed(first) == []
    assert bench.engine.state.counts.stale == 1


@pytest.mark.parametrize("ordering", ["non_blocking", "blocking", "per_group"])
def test_the_others_keep_their_order(ordering: str) -> None:
    """Whichever of three ready messages are taken back, the rest is dispatched in order of arrival."""
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
    """A parked message stays parked until its own due time, in its own place."""
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
    """The suspect waits for its exclusive run, and stays the head of its group."""
    bench = Bench(able=FLOWING, ordering="per_group", counted=True)
    suspect, _, other = bench.arrive(Letter(1, group="g"), Letter(2, group="g"), Letter(3, group="h"))
    bench.feed(Wanted())
    bench.feed(Known(suspect, Entry(suspect=True)))
    bench.feed(TakenBack(1, [other]))
    assert bench.engine.load.suspects == 1
    assert bench.feed(Wanted()) == []


@pytest.mark.parametrize("ordering", ["blocking", "per_group"])
def test_what_follows_a_running_message_waits_on_when_another_one_is_taken_back(ordering: str) -> None:
    """The next messages wait until the running handler has ended: a group, and a queue, is handled in order."""
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
    """A suspect that was taken back does not run: another consumer has it, or it is redelivered."""
    bench = Bench(able=FLOWING, counted=True)
    (suspect,) = bench.arrive(Letter(1))
    bench.feed(Wanted())
    bench.feed(Known(suspect, Entry(suspect=True)))
    bench.feed(TakenBack(1, [suspect]))
    assert (suspect.state, bench.engine.load.suspects) == ("lost", 0)
    assert bench.feed(Alone()) == []


def test_what_was_released_here_and_taken_back_is_not_begun_again() -> None:
    """A message that was released here and then taken back is not dispatched again."""
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
    """The broker may send one more for each message taken back, whether it was ready, running or parked."""
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
    """The verdict stays, and the dead letter is made again; the answer to the first one is ignored."""
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
    """A late result after the connection was lost, too, is stale."""
    bench = Bench()
    letter = Letter(1)
    first = bench.run(letter)
    bench.feed(TakenBack(1, [first]))
    bench.lose()
    assert getattr(bench, result)(first) == []
    assert (first.outcome, bench.engine.state.counts.stale, bench.engine.load.parked) == ("stale", 1, 0)
    bench.connect()
    second = bench.again(letter)
    assert second.record is None or second.record.count == (result == "fail")


def test_what_was_to_wait_and_was_taken_back_before_that_was_written_waits() -> None:
    """A delayed message that was taken back before the broker read its settlement is released again."""
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
    """A message taken back over a connection that is gone changes nothing."""
    bench = Bench(able=FLOWING, credit=4)
    first = bench.run(Letter(1))
    bench.lose()
    bench.connect()
    assert bench.feed(TakenBack(1, [first])) == []
    assert first.epoch == 1
    assert bench.engine.state.flow.settled == 0


def test_what_is_settled_is_settled() -> None:
    """A take-back that crosses an acceptance on the wire changes nothing."""
    bench = Bench()
    delivery = bench.run(Letter(1))
    bench.succeed(delivery)
    assert bench.feed(TakenBack(1, [delivery])) == []

"""Messages that can be neither copied nor settled: unacknowledged, not dispatched, bounded, and reported each hour."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.core.bench import CAUSE, CONFIRMED_FORWARD, Bench
from tests.core.model import Arrival, Letter

from redelivery.core.commands import Credit, Release, SetAside, StillAside, Stop
from redelivery.core.dead_lettering.routing import DeadLetterRouting
from redelivery.core.events import Arrived, Confirmed, Known, Poisoned, Succeeded, Tick
from redelivery.core.ledger_entry import Entry
from redelivery.core.pending_confirms import REMINDER
from redelivery.errors import AdapterError

if TYPE_CHECKING:
    from redelivery.core.capabilities import Capabilities

LIMITED = replace(CONFIRMED_FORWARD, release=True, max_hold=1800.0)
CLASSIC = replace(CONFIRMED_FORWARD, unsettleable=True)


class Numbered(Arrival):
    """Delivery that cannot be settled."""

    settleable = False


def bench(most: int = 100, able: Capabilities = CONFIRMED_FORWARD, **options: Any) -> Bench:
    """Return an engine that may set `most` messages aside."""
    return Bench(able=able, dead_letters=DeadLetterRouting(maximum_set_aside=most), **options)


def aside(at: Bench, number: int = 0) -> tuple[Letter, Arrival]:
    """Poison a message that did not arrive whole."""
    letter = Letter(number, partial=True)
    delivery = at.run(letter)
    at.commands = at.feed(Poisoned(delivery, CAUSE))
    assert delivery.state == "aside"
    return letter, delivery


def test_it_is_told_once_and_each_hour_with_the_cure() -> None:
    """The text names the queue and both ways out; the engine's own alarm repeats it each hour."""
    at = bench()
    _, delivery = aside(at)
    (command,) = at.commands
    assert isinstance(command, SetAside)
    assert all(said in str(command.error) for said in ("queue://orders", "over AMQP", "console"))
    for _ in range(3):
        assert at.engine.next_alarm() == at.now + REMINDER
        at.now += REMINDER - 1
        assert at.feed(Tick()) == []
        at.now += 1
        assert at.feed(Tick()) == [StillAside(delivery, command.error)]
    assert at.engine.state.counts.set_aside == 1


def test_the_others_flow() -> None:
    """A message that is set aside is neither parked nor running; other messages are handled."""
    at = bench(credit=1, max_parked=1)
    aside(at)
    for number in range(1, 4):
        delivery = at.run(Letter(number))
        assert at.succeed(delivery) != []
    assert (at.engine.load.parked, at.engine.load.running, at.engine.load.full) == (0, 0, False)


@pytest.mark.parametrize("ordering", ["blocking", "per_group"])
def test_no_order_waits_for_it(ordering: str) -> None:
    """The next message in order, or of the same group, is dispatched."""
    at = bench(ordering=ordering)
    first, _ = Letter(0, group="g", partial=True), None
    (bad, good) = at.arrive(first, Letter(1, group="g"))
    assert at.want() is bad
    at.feed(Poisoned(bad, CAUSE))
    assert at.want() is good


@pytest.mark.parametrize("most", [0, 2])
def test_past_the_bound_the_consumer_stops(most: int) -> None:
    """One message above the maximum stops the consumer with its error; at 0 the first one does."""
    at = bench(most)
    for number in range(most):
        aside(at, number)
    delivery = at.run(Letter(9, partial=True))
    (stop,) = at.feed(Poisoned(delivery, CAUSE))
    assert isinstance(stop, Stop)
    assert ("redelivery.maximumSetAside" in str(stop.error)) == (most > 0)
    assert delivery.state == "held"
    at.arrive(Letter(10))
    assert at.want() is None
    assert at.engine.state.counts.set_aside == most


def test_it_comes_again_over_the_next_connection() -> None:
    """A message that is redelivered on the next connection is set aside again, unhandled, uncounted and unreported."""
    at = bench()
    letter, _ = aside(at)
    at.now += 1000
    at.lose()
    at.connect()
    again = at.again(letter)
    (command,) = at.commands
    assert isinstance(command, SetAside)
    assert command.again
    assert (again.state, at.want(), at.engine.state.counts.set_aside) == ("aside", None, 1)
    assert at.engine.next_alarm() == at.now - 1000 + REMINDER


def test_it_is_known_to_another_consumer_of_the_source() -> None:
    """Whichever consumer gets the message next sets it aside: the history is shared."""
    at, other = bench(), bench()
    other.engine.state.share(at.engine.state.history)
    letter, _ = aside(at)
    at.lose()
    other.connect()
    letter.attempts += 1
    (again,) = other.arrive(letter)
    assert (again.state, other.engine.state.counts.set_aside) == ("aside", 0)


def test_it_goes_back_before_the_brokers_limit() -> None:
    """A message is released before the broker's limit, redelivered, and set aside again, unhandled and unreported."""
    at = bench(able=LIMITED)
    letter, delivery = aside(at)
    at.now += 1439
    assert at.feed(Tick()) == []
    at.now += 1
    (release,) = at.feed(Tick())
    assert isinstance(release, Release)
    assert (release.deliveries, delivery.state) == ((delivery,), "settled")
    again = at.again(letter)
    (command,) = at.commands
    assert isinstance(command, SetAside)
    assert command.again
    assert (again.state, at.want(), at.engine.state.counts.set_aside) == ("aside", None, 1)
    at.now += 1440
    assert [type(each) for each in at.feed(Tick())] == [Release]


def test_delays_before_it_was_poison_count_for_that_limit() -> None:
    """Delays before a message was poison count for the broker's limit: it is the same delivery."""
    at = bench(able=LIMITED)
    letter = Letter(0, partial=True)
    delivery = at.run(letter)
    at.fail(delivery)
    at.now += 60
    assert at.want() is delivery
    at.feed(Poisoned(delivery, CAUSE))
    assert at.engine.next_alarm() == at.now + 1440 - 60


@pytest.mark.parametrize(
    ("able", "asked"),
    [(replace(CONFIRMED_FORWARD, flow=True), 1), (replace(CONFIRMED_FORWARD, grows=True), 1)],
    ids=["by flow", "grows"],
)
def test_it_takes_none_of_the_credit(able: Capabilities, asked: int) -> None:
    """The broker is asked for one more message for each one set aside, beyond the limit of parked ones."""
    at = bench(able=able, credit=4, max_parked=1)
    at.want()
    for number in range(3):
        letter = Letter(number, partial=True)
        delivery = at.run(letter)
        commands = at.feed(Poisoned(delivery, CAUSE))
        credit = [command.messages for command in commands if isinstance(command, Credit)]
        assert credit == [asked], number


def test_where_the_window_has_one_size_it_takes_the_room_of_what_is_parked() -> None:
    """In a fixed window each one reduces how many may be parked, not the credit; fresh messages are dispatched."""
    at = bench(max_parked=2)
    aside(at)
    at.fail(at.run(Letter(1)))
    at.arrive(Letter(2))
    assert at.engine.load.full
    assert at.want() is None
    at.now += 60
    assert at.want() is not None


def test_a_ledger_knows_it_after_the_process_has_died() -> None:
    """After the process has died, the ledger entry stays, and the message is set aside without being handled."""
    at = bench(counted=True)
    (delivery,) = at.arrive(Letter(0, partial=True))
    at.want()
    commands = at.feed(Known(delivery, Entry(count=2, cause="bad", poisoned=True)))
    assert [type(command) for command in commands] == [SetAside]
    assert (delivery.state, at.engine.state.counts.set_aside) == ("aside", 1)


def test_what_expires_and_cannot_be_copied_is_set_aside() -> None:
    """An expired message that cannot be copied is set aside without a handler."""
    at = bench()
    (delivery,) = at.arrive(Letter(0, partial=True, expires_at=1.0))
    assert at.want() is None
    assert delivery.state == "aside"


def test_what_cannot_be_settled_is_set_aside_at_arrival() -> None:
    """A message that cannot be settled is set aside unhandled; the others of its batch are dispatched."""
    at = bench(able=CLASSIC)
    numbered, plain = Numbered(Letter(0), 1, counts=False), Arrival(Letter(1), 1, counts=False)
    (command,) = at.feed(Arrived(1, [numbered, plain]))
    assert isinstance(command, SetAside)
    assert "cannot settle a message from" in str(command.error)
    assert "redelivery dlq redrive AMQP-URI" in str(command.error)
    assert (numbered.state, at.want(), at.want()) == ("aside", plain, None)
    at.lose()
    at.connect()
    again = Numbered(Letter(0), 2, counts=False)
    (command,) = at.feed(Arrived(1, [again]))
    assert isinstance(command, SetAside)
    assert (command.again, again.state, at.engine.state.counts.set_aside) == (True, "aside", 1)


def test_too_many_that_cannot_be_settled_stop_the_consumer_once() -> None:
    """After the last one allowed, the other messages of the batch stay undispatched, and the consumer stops once."""
    at = bench(1, able=CLASSIC)
    came = [Numbered(Letter(number), 1, counts=False) for number in range(4)]
    commands = at.feed(Arrived(1, came))
    assert [type(command) for command in commands] == [SetAside, Stop]
    assert [each.state for each in came] == ["aside", "held", "held", "held"]


def test_where_all_can_be_settled_nobody_asks() -> None:
    """On brokers that can settle all messages the property is not read."""
    at = bench()
    numbered = Numbered(Letter(0), 1, counts=False)
    at.feed(Arrived(1, [numbered]))
    assert at.want() is numbered
    assert at.feed(Succeeded(numbered)) != []


def refused(at: Bench, number: int = 0) -> tuple[Letter, Arrival]:
    """Poison a message whose copy the adapter can never send."""
    letter = Letter(number)
    delivery = at.run(letter)
    at.feed(Poisoned(delivery, CAUSE))
    at.commands = at.feed(Confirmed(delivery, AdapterError("too large"), final=True))
    return letter, delivery


def test_what_can_never_be_copied_is_set_aside() -> None:
    """The adapter's answer sets a message aside, with its error; it is not retried, and others are handled."""
    at = bench(credit=1, max_parked=1)
    _, delivery = refused(at)
    (command,) = at.commands
    assert isinstance(command, SetAside)
    assert str(command.error) == "too large"
    assert (delivery.state, at.engine.state.counts.set_aside, at.engine.load.unconfirmed) == ("aside", 1, 0)
    other = at.run(Letter(1))
    assert at.succeed(other) != []
    at.now += REMINDER - 1
    assert at.feed(Tick()) == []
    assert at.engine.next_alarm() == at.now + 1
    # A late answer changes nothing.
    assert at.feed(Confirmed(delivery, AdapterError("too large"), final=True)) == []


def test_past_the_bound_a_copy_that_cannot_be_sent_stops_the_consumer() -> None:
    """A message above the maximum whose copy cannot be sent stops the consumer, as one that cannot be copied does."""
    at = bench(1)
    refused(at)
    _, delivery = refused(at, 1)
    (stop,) = at.commands
    assert isinstance(stop, Stop)
    assert "redelivery.maximumSetAside" in str(stop.error)
    assert delivery.state == "held"

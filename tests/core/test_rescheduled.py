"""Messages that the broker may not have delayed: all consumers of a source know them, each message once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.core.bench import CAUSE
from tests.core.model import Letter
from tests.core.test_native_redelivery import Held, bench, come, come_first, one

from redelivery.core.broker_redelivery import BASE
from redelivery.core.commands import Accept, AcceptUnseen, Forward
from redelivery.core.dead_lettering.routing import DUE
from redelivery.core.events import Arrived, ConnectionLost, Deferred
from redelivery.core.message_history import MessageHistory
from redelivery.errors import TransportError

if TYPE_CHECKING:
    from tests.core.bench import Bench
    from tests.core.model import Arrival


class Equal(Held):
    """One of two messages that are equal in every byte."""

    __slots__ = ()

    @property
    def key(self) -> str:
        return "same"

    @property
    def strong(self) -> bool:
        return False


def two_held_back() -> Bench:
    """Return an engine that has released two equal messages, to be delayed by the broker."""
    at = bench()
    for number in (1, 2):
        held = Equal(Letter(number), at.epoch, {})
        at.feed(Arrived(1, [held]))
        assert at.want() is held
        one(at.fail(held))
    return at


def test_two_equal_messages_whose_settlements_are_lost_both_wait() -> None:
    """Each of two equal messages keeps its delay and its count."""
    at = two_held_back()
    at.lose()
    at.connect()
    for number in (1, 2):
        again = Equal(Letter(number, attempts=1), at.epoch, {})
        assert one(at.feed(Arrived(1, [again]))).count == 1


def test_an_equal_message_that_the_broker_has_not_sent_before_changes_nothing() -> None:
    """An equal message that was never sent before leaves the other one's settlement in doubt."""
    at = bench()
    first = Equal(Letter(1), at.epoch, {})
    at.feed(Arrived(1, [first]))
    assert at.want() is first
    one(at.fail(first))
    second = Equal(Letter(2), at.epoch, {})
    at.feed(Arrived(1, [second]))
    assert at.want() is second
    at.succeed(second)
    at.lose()
    at.connect()
    again = Equal(Letter(1, attempts=1), at.epoch, {})
    assert one(at.feed(Arrived(1, [again]))).count == 1


def test_what_comes_again_without_its_note_was_not_read_as_what_is_to_wait() -> None:
    """A message that the broker took back over a connection that stands is parked here, with its count."""
    at, letter = bench(), Letter(1)
    one(at.fail(come_first(at, letter)))
    letter.attempts += 1
    at.now += 10.0
    held = come(at, letter, {})
    assert at.want() is None
    at.now += 50.0
    assert at.want() is held
    assert held.record is not None
    assert held.record.count == 1


def test_what_another_consumer_has_had_since_is_not_taken_for_lost() -> None:
    """A verdict of another consumer that got the message in between decides, not the first one's memory."""
    history = MessageHistory()
    first, second = bench(), bench()
    for at in (first, second):
        at.engine.state.share(history)
    letter = Letter(1)
    notes = {**one(first.fail(come_first(first, letter))).notes, "redeliveryCount": "3"}
    second.now += 61.0
    letter.attempts += 1
    held = come(second, letter, notes)
    assert second.want() is held
    (forward,) = second.fail(held)
    assert isinstance(forward, Forward)
    first.now = second.now
    for at in (first, second):
        at.lose()
        at.connect()
    letter.attempts += 1
    come(second, letter, notes)
    (again,) = second.commands
    assert isinstance(again, Forward), "it is poison, and not dispatched"
    assert history.empty


def test_what_a_consumer_that_has_closed_gave_back_is_known_to_the_next_one() -> None:
    """A consumer's released messages are known to the next one if the connection is lost after it has closed."""
    history, later = MessageHistory(), MessageHistory()
    at = bench()
    at.engine.state.share(history)
    one(at.fail(come_first(at, Letter(1))))
    at.feed(ConnectionLost(at.epoch, TransportError("closed"), closed=True))
    assert history.empty
    later.absorb(history)
    later.lost(at.now, at.epoch, 1.0)
    assert not later.empty


def deferred(at: Bench, held: Arrival) -> dict[str, Any]:
    """Defer a message for five seconds; return the notes on it."""
    return dict(one(at.feed(Deferred(held, 5.0, CAUSE))).notes)


@pytest.mark.parametrize(("later", "known"), [(59.0, True), (60.0, False)])
def test_for_a_minute_a_settlement_may_be_lost(later: float, *, known: bool) -> None:
    """A message that arrives more than a minute after its settlement counts as put back by an operator."""
    at = bench()
    one(at.fail(come_first(at, Letter(1))))
    at.now += later
    at.lose()
    assert at.engine.state.history.empty == (not known)


def test_two_equal_messages_that_were_taken_back_before_that_was_read_both_wait() -> None:
    """Each of two equal messages is redelivered over the connection that stands, without a note, and is parked."""
    at = two_held_back()
    for number in (1, 2):
        at.feed(Arrived(1, [Equal(Letter(number, attempts=1), at.epoch, {})]))
    assert at.want() is None
    assert at.engine.load.parked == 2


@pytest.mark.parametrize("later", [0, 7_000])
def test_what_came_as_it_should_and_was_accepted_is_not_handled_again(later: int) -> None:
    """A message that arrives with the note written here, or with another consumer's later one, is in doubt no more."""
    at, letter = bench(), Letter(1)
    notes = deferred(at, come_first(at, letter))
    at.now += 5.0 + later / 1000
    letter.attempts += 1
    count = "2" if later else "0"
    held = come(at, letter, {**notes, DUE: notes[DUE] + later, "redeliveryCount": count, BASE: 1})
    assert at.want() is held
    assert held.record is not None
    assert held.record.count == int(count), "the note counts, not the memory"
    at.succeed(held)
    at.lose()
    at.connect()
    come(at, letter, notes)
    assert [type(command) for command in at.commands] == [Accept, AcceptUnseen]


def test_what_was_lost_and_has_come_is_not_taken_for_lost_again() -> None:
    """A message that arrived after a loss is not affected by the next loss."""
    at, letter = bench(), Letter(1)
    deferred(at, come_first(at, letter))
    at.lose()
    at.connect()
    at.now += 6.0
    letter.attempts += 1
    held = come(at, letter, {})
    assert at.want() is held
    at.succeed(held)
    at.lose()
    at.connect()
    come(at, letter, {})
    assert [type(command) for command in at.commands] == [Accept, AcceptUnseen]

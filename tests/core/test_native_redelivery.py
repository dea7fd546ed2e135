"""The broker delays the message itself, and keeps notes on it; one transition at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.bench import CAUSE, Bench
from tests.core.model import WALL_OFFSET, Arrival, Letter

from redelivery.core.broker_redelivery import BASE, BrokerRedelivery
from redelivery.core.capabilities import Capabilities
from redelivery.core.commands import Forward, Hold, Release, Reschedule
from redelivery.core.dead_lettering.routing import COPY, DEFERRALS, DUE, DeadLetterRouting
from redelivery.core.events import Arrived, Deferred
from redelivery.core.message_history import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redelivery.core.commands import Command

QUEUE = "queue://orders"
ABLE = Capabilities("model", forward="confirmed", reschedule="native", release=True, counts=True)


class Held(Arrival):
    """Delivery of a message that the broker has delayed."""

    __slots__ = ("notes",)

    def __init__(self, letter: Letter, epoch: int, notes: Mapping[str, Any]) -> None:
        super().__init__(letter, epoch, counts=True)
        self.notes = notes

    @property
    def noted(self) -> Mapping[str, Any]:
        return self.notes


def bench(**options: Any) -> Bench:
    """Return an engine whose broker delays messages."""
    ways = BrokerRedelivery(QUEUE, "run", maximum_deferrals=5)
    return Bench(able=ABLE, dead_letters=DeadLetterRouting(scheduled=True), rescheduling=ways, **options)


def one(commands: list[Command]) -> Reschedule:
    """Return the only command."""
    (command,) = commands
    assert isinstance(command, Reschedule)
    return command


def come(at: Bench, letter: Letter, notes: Mapping[str, Any]) -> Held:
    """Make the message arrive with these notes."""
    held = Held(letter, at.epoch, notes)
    at.commands = at.feed(Arrived(1, [held]))
    return held


def test_a_failure_gives_the_message_back_with_its_time_and_its_count() -> None:
    """A failed message is released with its due time and count; nothing is sent or parked."""
    at = bench()
    delivery = at.run(Letter(1))
    command = one(at.fail(delivery))
    assert (command.due, command.delay, command.count) == (at.now + 60.0 + WALL_OFFSET, 60.0, 1)
    assert command.notes["redeliveryCount"] == "1"
    assert command.notes[COPY] == f"@{QUEUE}"
    assert command.notes[DUE] == round(command.due * 1000)
    assert (delivery.state, delivery.outcome) == ("settled", "redelivered")
    assert (at.engine.load.parked, at.engine.load.unconfirmed, at.engine.state.counts.redelivered) == (
        0,
        0,
        1,
    )


def test_counting_goes_on_to_the_dead_letter() -> None:
    """Three redeliveries are counted by the notes of the one before; then the message is poison."""
    at, letter, notes = bench(), Letter(1), dict[str, Any]()
    for count in (1, 2, 3):
        held = come(at, letter, notes)
        assert at.want() is held
        notes = dict(one(at.fail(held)).notes)
        assert notes["redeliveryCount"] == str(count)
        at.now += 60.0
    held = come(at, letter, notes)
    assert at.want() is held
    (forward,) = at.fail(held)
    assert isinstance(forward, Forward)
    assert forward.count == 4


def test_what_the_broker_has_counted_since_is_added() -> None:
    """A lost connection, or a process that died, is an attempt: the broker's count since the note is added."""
    at, letter = bench(), Letter(1, attempts=7)
    held = come(at, letter, {COPY: f"@{QUEUE}", "redeliveryCount": "1", BASE: 5})
    assert at.want() is held
    assert held.record is not None
    assert held.record.count == 3


def test_a_deferral_is_noted_uncharged() -> None:
    """Each deferral is noted, uncharged."""
    at, letter, notes = bench(), Letter(1), dict[str, Any]()
    for deferrals in (1, 2):
        held = come(at, letter, notes)
        assert at.want() is held
        command = one(at.feed(Deferred(held, 5.0, CAUSE)))
        assert (command.deferred, command.notes[DEFERRALS], command.notes["redeliveryCount"]) == (
            True,
            deferrals,
            "0",
        )
        notes = dict(command.notes)
        at.now += 5.0


def test_what_comes_early_waits_here_for_the_rest() -> None:
    """A message that arrives more than a second early, by the broker's clock, is parked for the rest."""
    at, letter = bench(), Letter(1)
    notes = one(at.fail(come_first(at, letter))).notes
    at.now += 10.0
    held = come(at, letter, notes)
    (hold,) = at.commands
    assert isinstance(hold, Hold)
    assert hold.delay == pytest.approx(50.0, abs=0.001)
    assert at.want() is None
    at.now += 50.0
    assert at.want() is held


def come_first(at: Bench, letter: Letter) -> Arrival:
    """Make a message arrive for the first time, and dispatch it."""
    held = come(at, letter, {})
    assert at.want() is held
    return held


def test_a_message_that_expires_before_it_is_due_waits_here() -> None:
    """A message that expires before it is due is parked here: the broker would drop it."""
    at = bench()
    (hold,) = at.fail(at.run(Letter(1, expires_at=WALL_OFFSET + 130.0)))
    assert isinstance(hold, Hold)


@pytest.mark.parametrize("later", [0.0, PATIENCE - 1.0])
def test_a_settlement_that_is_lost_with_the_connection_delays_all_the_same(later: float) -> None:
    """A message whose settlement was lost arrives at once, without notes, and is released again until its due time."""
    at, letter = bench(), Letter(1)
    due = one(at.fail(come_first(at, letter))).due
    at.now += later
    at.lose()
    at.connect()
    letter.attempts += 1
    come(at, letter, {})
    if later < 60.0:
        command = one(at.commands)
        assert (command.due, command.count) == (due, 1)
        assert command.notes[BASE] == 1


def test_a_settlement_is_taken_for_read_after_a_minute() -> None:
    """A message that arrives more than a minute after its settlement counts as put back by an operator."""
    at, letter = bench(), Letter(1)
    at.fail(come_first(at, letter))
    other = Letter(2)
    at.now += PATIENCE
    at.fail(come_first(at, other))
    at.lose()
    at.connect()
    assert at.engine.state.history.empty is False, "the second one is in doubt"
    held = come(at, letter, {})
    assert at.want() is held
    assert held.record is None or held.record.count == 0


def test_a_message_that_came_as_it_should_is_in_doubt_no_more() -> None:
    """After a message arrived with its notes, only the note of its next failure counts."""
    at, letter = bench(), Letter(1)
    notes = one(at.fail(come_first(at, letter))).notes
    at.now += 60.0 - 1.0
    held = come(at, letter, notes)
    assert at.want() is held
    at.lose()
    at.connect()
    letter.attempts += 1
    again = come(at, letter, notes)
    assert again.state == "waiting", "its handler still runs"


def test_what_another_process_has_charged_is_not_forgotten() -> None:
    """A note that arrives with the message counts more than this process's memory."""
    at, letter = bench(), Letter(1)
    notes = dict(one(at.fail(come_first(at, letter))).notes)
    at.lose()
    at.connect()
    at.now += 61.0
    held = come(at, letter, {**notes, "redeliveryCount": "3", DUE: notes[DUE]})
    assert at.want() is held
    assert held.record is not None
    assert held.record.count == 3


def test_notes_of_another_queue_count_for_nothing() -> None:
    """A message that was moved from another queue starts without failures."""
    at, letter = bench(), Letter(1)
    held = come(at, letter, {COPY: "@queue://other", "redeliveryCount": "3", BASE: 0})
    assert at.want() is held
    assert held.record is None or held.record.count == 0
    assert one(at.fail(held)).notes["redeliveryCount"] == "1"


@pytest.mark.parametrize(("base", "count"), [(-5, 1), (0, 1), (1, 0), (9, 0), ("1", 0), (None, 0), ("x", 0)])
def test_what_the_broker_had_counted_is_a_whole_number_or_nothing(base: object, count: int) -> None:
    """A forged base count creates no attempts."""
    at = bench()
    held = come(at, Letter(1, attempts=1), {COPY: f"@{QUEUE}", "redeliveryCount": "0", BASE: base})
    assert at.want() is held
    assert held.record is not None
    assert held.record.count == count


def test_a_ledger_counts_instead_of_the_broker() -> None:
    """With a ledger, a message that was only prefetched when a connection was lost is not charged; notes count."""
    at = bench(counted=True)
    notes = {COPY: f"@{QUEUE}", "redeliveryCount": "1", BASE: 0}
    held = come(at, Letter(1, attempts=2), notes)
    at.want()
    assert held.record is not None
    assert held.record.count == 1


NOTES = st.fixed_dictionaries(
    {},
    optional={
        COPY: st.sampled_from([f"@{QUEUE}", "", 7, None]),
        DUE: st.one_of(st.integers(), st.text(max_size=20), st.floats(), st.none()),
        BASE: st.one_of(st.integers(), st.text(max_size=5), st.binary(max_size=5)),
        DEFERRALS: st.one_of(st.integers(), st.text(max_size=5), st.lists(st.integers(), max_size=2)),
        "redeliveryCount": st.one_of(st.integers(), st.text(max_size=20), st.booleans()),
        "redeliveryCause": st.one_of(st.text(max_size=20), st.integers()),
        "redeliveryFirstFailure": st.one_of(st.text(max_size=20), st.integers()),
    },
)


@given(NOTES, st.integers(0, 9))
def test_no_note_kills_or_hides_a_message(notes: Mapping[str, Any], attempts: int) -> None:
    """A message with any such annotations is handled, after its policy's delay at most."""
    at = bench()
    held = come(at, Letter(1, attempts=attempts), notes)
    delivery = at.want()
    if delivery is None:
        at.now += 60.0
        delivery = at.want()
    assert delivery is held
    commands = at.fail(held)
    assert isinstance(commands[0], Reschedule | Forward | Hold | Release)


def test_what_comes_at_once_without_its_notes_waits_here() -> None:
    """If the broker did not read or keep the notes, the failure counts and the message is parked: no tight loop."""
    at, letter = bench(), Letter(1)
    due = one(at.fail(at.run(letter))).due - WALL_OFFSET
    again = Held(letter, at.epoch, {})
    again.mark = True
    (hold,) = at.feed(Arrived(1, [again]))
    assert isinstance(hold, Hold)
    assert (hold.due, hold.count) == (due, 1)
    assert at.want() is None
    at.now = due
    assert at.want() is again
    assert one(at.fail(again)).count == 2


def test_a_fresh_message_like_one_that_waits_is_not_charged() -> None:
    """A fresh message equal to a delayed one is not charged: the broker reports that it was never delivered."""
    at, letter = bench(), Letter(1)
    one(at.fail(at.run(letter)))
    fresh = come(at, letter, {})
    assert at.want() is fresh
    assert one(at.fail(fresh)).count == 1

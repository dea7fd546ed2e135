"""Failed messages are sent as copies that the broker delays; one transition at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.bench import CAUSE, Bench
from tests.core.model import WALL_OFFSET, Arrival, Letter

from redelivery.core.broker_redelivery import BrokerRedelivery, original_expiry
from redelivery.core.capabilities import Capabilities
from redelivery.core.commands import (
    Accept,
    AcceptUnseen,
    Bury,
    Clear,
    Dispatch,
    Forward,
    Hold,
    LookUp,
    Mark,
    Refused,
    Unanswered,
)
from redelivery.core.dead_lettering.routing import COPY, DEFERRALS, DUE, EXPIRES, DeadLetterRouting
from redelivery.core.events import Arrived, Confirmed, Deferred, Drained, Known, Tick, Wanted
from redelivery.core.ledger_entry import Entry
from redelivery.core.policy.redelivery_policy import RedeliveryPolicy
from redelivery.errors import AdapterError, BrokerUnavailable, RedeliveryError, TransportError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redelivery.core.commands import Command

QUEUE = "queue://orders"
ATOMIC = Capabilities("model", forward="atomic", reschedule="atomic", release=True)
CONFIRMED = replace(ATOMIC, reschedule="confirmed", forward="confirmed")
REFUSED = AdapterError("refused")


class Copy(Arrival):
    """A delivery with properties."""

    __slots__ = ("told",)

    def __init__(self, told: Mapping[str, Any], epoch: int, number: int = 7) -> None:
        super().__init__(Letter(number), epoch, counts=False)
        self.told = told

    @property
    def headers(self) -> Mapping[str, Any]:
        return self.told


def bench(able: Capabilities = ATOMIC, **options: Any) -> Bench:
    options.setdefault("rescheduling", BrokerRedelivery(QUEUE, "run", maximum_deferrals=5))
    return Bench(able=able, dead_letters=DeadLetterRouting(scheduled=True), **options)


def one(commands: list[Command]) -> Forward:
    (command,) = commands
    assert isinstance(command, Forward)
    return command


def confirm(at: Bench, delivery: Arrival, error: RedeliveryError | None = None) -> list[Command]:
    return at.feed(Confirmed(delivery, error))


def come(at: Bench, told: Mapping[str, Any], number: int = 7) -> Copy:
    """Make a message with these properties arrive."""
    copy = Copy(told, at.epoch, number)
    at.commands = at.feed(Arrived(1, [copy]))
    return copy


def test_a_failure_sends_a_delayed_copy_to_the_same_queue() -> None:
    """A failed message's copy carries its count; the original is accepted once the copy is confirmed."""
    for able, settled in ((ATOMIC, 0), (CONFIRMED, 1)):
        at = bench(able)
        delivery = at.run(Letter(1))
        forward = one(at.fail(delivery))
        assert (forward.copy.destination, forward.copy.delay, forward.copy.persistent) == (QUEUE, 60.0, True)
        assert forward.copy.headers["redeliveryCount"] == "1"
        assert forward.copy.headers[COPY] == f"run-1@{QUEUE}"
        assert forward.copy.headers[DUE] == str(round((at.now + 60 + WALL_OFFSET) * 1000))
        assert (forward.delayed, forward.back, forward.atomic(able)) == (True, True, able is ATOMIC)
        assert (delivery.outcome, at.engine.load.parked, at.engine.load.next_due()) == (
            "redelivered",
            1,
            None,
        )
        accepts = confirm(at, delivery)
        assert [type(command) for command in accepts] == [Accept] * settled
        assert (
            at.engine.load.parked,
            at.engine.state.counts.redelivered,
            at.engine.state.counts.poisoned,
        ) == (0, 1, 0)


def test_without_a_delay_nothing_is_sent() -> None:
    """A redelivery that is due at once is made by this client, without a copy."""
    at = bench(policy=RedeliveryPolicy(initial_redelivery_delay=0.0))
    (hold,) = at.fail(at.run(Letter(1)))
    assert isinstance(hold, Hold)
    assert at.want() is not None


def test_a_refused_copy_is_tried_again_for_the_rest_of_its_delay() -> None:
    """A refused copy is retried after one second, and so on, for the rest of its delay; the original stays here."""
    at = bench(CONFIRMED)
    delivery = at.run(Letter(1))
    one(at.fail(delivery))
    assert isinstance(confirm(at, delivery, REFUSED)[0], Refused)
    at.now += 1.0
    assert one(at.feed(Tick())).copy.delay == 59.0
    at.now += 30.0
    (waits,) = at.feed(Tick())
    assert isinstance(waits, Unanswered)
    confirm(at, delivery, REFUSED)
    at.now += 300.0
    assert one(at.feed(Tick())).copy.delay == 0.001
    assert isinstance(confirm(at, delivery)[0], Accept)


def test_a_connection_lost_before_the_answer_sends_the_copy_again() -> None:
    """A message is not handled beside its copy, whether the answer or the acceptance was lost with the connection."""
    for answered in (False, True):
        at = bench(CONFIRMED)
        letter = Letter(1)
        delivery = at.run(letter)
        at.fail(delivery)
        if answered:
            confirm(at, delivery)
        at.lose()
        at.now += 10.0
        at.connect()
        at.again(letter)
        assert one(at.commands).copy.delay == 50.0
        assert at.want() is None
        assert at.engine.state.counts.redelivered == 1


def twice(answered: bool) -> tuple[Bench, Mapping[str, Any]]:
    """Return an engine that has sent one delayed copy twice, over a lost connection, and the copy's properties."""
    at, letter = bench(CONFIRMED), Letter(1)
    delivery = at.run(letter)
    at.fail(delivery)
    if answered:
        confirm(at, delivery)
    at.lose()
    at.connect()
    again = at.again(letter)
    told = one(at.commands).copy.headers
    confirm(at, again)
    at.now += 60.0
    return at, told


@pytest.mark.parametrize("answered", [False, True])
def test_a_second_copy_of_one_delivery_is_accepted_unseen(answered: bool) -> None:
    """If the broker had stored the copy that was sent again, the second one to arrive is accepted without a handler."""
    at, told = twice(answered)
    first = come(at, told)
    assert at.want() is first
    before = at.engine.state.counts.deduplicated
    come(at, told, number=8)
    assert [type(command) for command in at.commands] == [Accept, AcceptUnseen]
    assert at.engine.state.counts.deduplicated == before + 1
    # The next copy is none of those two.
    third = come(at, told, number=9)
    assert at.want() is third


def test_a_copy_that_is_redelivered_is_no_second_one() -> None:
    """A copy that was sent twice and stored once is handled again after a loss: it was never accepted."""
    at, told = twice(answered=False)
    assert at.want() is None
    first = come(at, told)
    assert at.want() is first
    at.lose()
    at.connect()
    again = Copy(told, at.epoch)
    again.mark = True
    at.feed(Arrived(1, [again]))
    assert not [command for command in at.commands if isinstance(command, AcceptUnseen)]
    assert again.outcome is None


def test_what_was_delivered_before_is_no_second_copy() -> None:
    """A copy with the redelivered flag is handled, though nothing is remembered of it: a second copy has no flag."""
    at, told = twice(answered=False)
    first = come(at, told)
    assert at.want() is first
    again = Copy(told, at.epoch, 8)
    again.mark = True
    at.feed(Arrived(1, [again]))
    assert at.want() is again


def test_a_copy_that_was_sent_once_has_no_second() -> None:
    """Two arrivals of one name are two messages, if this client has sent the copy once."""
    at = bench(CONFIRMED)
    delivery = at.run(Letter(1))
    told = one(at.fail(delivery)).copy.headers
    confirm(at, delivery)
    at.now += 60.0
    for number in (7, 8):
        copy = come(at, told, number=number)
        assert at.want() is copy


def test_what_a_copy_cannot_stand_for_waits_here() -> None:
    """A message whose body did not arrive whole, or that expires before it is due, is parked here."""
    for letter in (Letter(1, partial=True), Letter(1, expires_at=WALL_OFFSET + 130.0)):
        at = bench()
        (hold,) = at.fail(at.run(letter))
        assert isinstance(hold, Hold)
        assert at.engine.load.parked == 1
    at = bench(replace(ATOMIC, max_hold=50.0))  # the limit applies again
    (hold,) = at.fail(at.run(Letter(1, partial=True)))
    assert isinstance(hold, Hold)
    assert hold.delay == 40.0


def test_the_life_of_a_message_is_its_copys() -> None:
    """A delayed copy expires when its message would have expired."""
    at = bench()
    assert (
        one(at.fail(at.run(Letter(1, expires_at=WALL_OFFSET + 500.0)))).copy.expires_at == WALL_OFFSET + 500.0
    )


@given(st.floats(1.7e9, 1.9e9), st.floats(0, 60))
def test_a_copy_expires_with_its_original_however_late_the_broker_is(at: float, late: float) -> None:
    """A copy whose expiry the broker has moved expires with its original; no note makes a message live longer."""
    told = {COPY: f"run-1@{QUEUE}", EXPIRES: str(int(at * 1000))}
    assert original_expiry(at + late, told) == int(at * 1000) / 1000
    assert original_expiry(at - late - 1, told) == at - late - 1
    assert original_expiry(None, told) is None
    assert original_expiry(at + late, {EXPIRES: told[EXPIRES]}) == at + late


def test_the_longest_delay_of_a_broker_is_kept() -> None:
    """A message with a longer delay than the broker supports arrives after the broker's longest delay."""
    at = bench(replace(ATOMIC, longest_delay=10.0))
    forward = one(at.fail(at.run(Letter(1))))
    assert forward.copy.delay == 10.0


def test_a_failure_while_draining_leaves_too() -> None:
    """A message that fails while the consumer drains is sent as a copy, which keeps its count and its delay."""
    at = bench()
    delivery = at.run(Letter(1))
    at.feed(Drained())
    assert one(at.fail(delivery)).copy.delay == 60.0


def test_a_copy_goes_on_counting_to_a_dead_letter_of_the_first_message() -> None:
    """The dead letter describes the message that failed first, without the properties that mark a delayed copy."""
    at = bench()
    told: Mapping[str, Any] = {"n": 1}
    for count in range(3):
        delivery = come(at, told, number=count)
        assert at.want() is delivery
        assert (delivery.record.count if delivery.record else 0) == count
        told = one(at.fail(delivery)).copy.headers
        confirm(at, delivery)
        at.now += 60.0
    last = come(at, {**told, "redeliveryOriginalId": "first"}, number=9)
    assert at.want() is last
    letter = one(at.fail(last))
    assert not letter.delayed
    headers = letter.copy.headers
    assert {COPY, DUE, DEFERRALS}.isdisjoint(headers)
    assert (headers["redeliveryOriginalId"], headers["redeliveryCount"], headers["n"]) == ("first", "4", 1)
    assert headers["redeliveryFirstFailure"] == "2023-11-14T22:15:00.000Z"
    assert headers["redeliveryLastFailure"] == "2023-11-14T22:18:00.000Z"


def test_a_copy_that_was_not_held_waits_here() -> None:
    """A copy that arrives long before it is due is parked here: neither dispatched nor sent again."""
    at = bench()
    told = one(at.fail(at.run(Letter(1)))).copy.headers
    copy = come(at, told)
    (hold,) = at.commands
    assert isinstance(hold, Hold)
    assert hold.delay == 60.0
    assert at.want() is None
    at.now += 60.0
    assert at.want() is copy
    at.now -= 0.5  # clocks may differ a little
    assert come(at, told, number=8) is at.want()


def test_deferrals_travel_along() -> None:
    """The number of deferrals is kept on the copies and has a limit."""
    at = bench(maximum_deferrals=1)
    delivery = at.run(Letter(1))
    forward = one(at.feed(Deferred(delivery, 100.0, CAUSE)))
    assert (forward.copy.delay, forward.copy.headers[DEFERRALS], delivery.outcome) == (100.0, "1", "deferred")
    assert forward.copy.headers["redeliveryCount"] == "0"
    at.now += 100.0
    copy = come(at, forward.copy.headers)
    assert at.want() is copy
    again = one(at.feed(Deferred(copy, 100.0, CAUSE)))
    assert (again.copy.delay, copy.outcome) == (60.0, "redelivered")


def test_another_queues_copy_is_a_message_like_any_other() -> None:
    """A delayed copy that was moved to another queue starts without failures."""
    at = bench()
    told = one(at.fail(at.run(Letter(1)))).copy.headers
    for marked in ({**told, COPY: "run-1@queue://DLQ"}, {**told, COPY: 5}, {"redeliveryCount": "3"}):
        copy = come(at, marked)
        assert at.want() is copy
        assert copy.record is None
        at.succeed(copy)


values = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.binary(max_size=4)
)
texts = st.sampled_from(["-1", "٣", "1" * 400, "2026-01-01T00:00:00Z", "9999-12-31T23:59:59-23:59", "0"])
names = (
    "redeliveryCount",
    DEFERRALS,
    DUE,
    "redeliveryCause",
    "redeliveryFirstFailure",
    "redeliveryLastFailure",
)


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(names, values | texts)), st.sampled_from([-1, 0, 3]))
def test_no_property_of_a_message_does_harm(told: dict[str, Any], maximum: int) -> None:
    """Any properties that a producer writes leave a message to be dispatched, with a count up to the maximum."""
    policy = RedeliveryPolicy(maximum_redeliveries=maximum)
    at = bench(policy=policy)
    copy = come(at, {**told, COPY: f"x@{QUEUE}"})
    due = at.engine.load.next_due()
    assert due is None or due <= at.now + 1.0, "nothing waits for longer than its policy says"
    at.now = at.now if due is None else max(at.now, due)
    assert at.want() is copy
    assert copy.record is not None
    assert 0 <= copy.record.count <= (maximum if maximum >= 0 else 10_000)
    assert 0 <= copy.record.deferrals <= 5
    (command,) = at.fail(copy)
    assert isinstance(command, Forward)
    assert command.delayed == (maximum < 0 or int(command.copy.headers["redeliveryCount"]) <= maximum)


def test_with_a_ledger_a_death_is_charged_and_its_delay_waited_for_at_the_broker() -> None:
    """With a ledger the count continues from the mark; a death in another process is charged and delayed for."""
    at = bench(counted=True)
    told = {COPY: f"x@{QUEUE}", "redeliveryCount": "1"}
    copy = come(at, told)
    (ask,) = at.feed(Wanted())
    assert isinstance(ask, LookUp)
    mark, dispatch = at.feed(Known(copy, None))
    assert isinstance(mark, Mark)
    assert (mark.count, type(dispatch)) == (1, Dispatch)
    clear, forward = at.fail(copy)
    assert isinstance(clear, Clear)
    assert isinstance(forward, Forward)
    assert [type(command) for command in confirm(at, copy)] == [Bury]
    again = come(at, told, number=8)
    at.feed(Wanted())
    last = at.now + WALL_OFFSET - 20.0
    forward = one(at.feed(Known(again, Entry(count=2, cause="crash", first=last, last=last))))
    assert (forward.copy.delay, forward.copy.headers["redeliveryCount"]) == (40.0, "2")


def test_a_copy_whose_own_connection_was_lost_may_have_been_taken() -> None:
    """A copy without an answer is known as the second one when it is sent again over the same consumer's connection."""
    at, letter = bench(CONFIRMED), Letter(1)
    delivery = at.run(letter)
    told = one(at.fail(delivery)).copy.headers
    confirm(at, delivery, TransportError("the connection for copies was lost"))
    at.now += 1.0
    assert one(at.feed(Tick())).delivery is delivery
    confirm(at, delivery)
    at.now += 60.0
    first = come(at, told)
    assert at.want() is first
    come(at, told, number=8)
    assert [type(command) for command in at.commands] == [Accept, AcceptUnseen]


@pytest.mark.parametrize("error", [AdapterError("full"), BrokerUnavailable("a node restarts")], ids=repr)
def test_a_copy_that_was_refused_has_no_second(error: RedeliveryError) -> None:
    """A refused copy is at the broker once after the next try: two of its name are two messages."""
    at, letter = bench(CONFIRMED), Letter(1)
    delivery = at.run(letter)
    told = one(at.fail(delivery)).copy.headers
    confirm(at, delivery, error)
    at.now += 1.0
    assert one(at.feed(Tick())).delivery is delivery
    confirm(at, delivery)
    at.now += 60.0
    assert at.want() is None
    for number in (7, 8):
        assert come(at, told, number=number) is at.want()

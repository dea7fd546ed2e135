"""Time limit of a policy: no redelivery begins later than that after the first failure."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.bench import CAUSE, Bench, Counted
from tests.core.model import WALL_OFFSET, Letter
from tests.core.test_broker_redelivery import ATOMIC, bench, come, one
from tests.core.test_ledger_engine import cleared
from tests.core.test_policy_guard import Own

from redelivery.core.cause import CAUSE_LIMIT, Cause
from redelivery.core.commands import Dispatch, Hold, PoisonAck
from redelivery.core.delivery import Record
from redelivery.core.events import Deferred, Failed
from redelivery.core.ledger_entry import CRASH, Entry
from redelivery.core.policy.policy_guard import would_exhaust
from redelivery.core.policy.redelivery_policy import RedeliveryPolicy

EVER = RedeliveryPolicy(
    maximum_redeliveries=-1, maximum_elapsed=10, initial_redelivery_delay=4, redelivery_delay=4
)


def fail(at: Bench, delivery: Any) -> Any:
    """Fail a delivery and return the first command."""
    return at.fail(delivery)[0]


def test_a_redelivery_that_would_begin_too_late_is_not_made() -> None:
    """A message whose next redelivery would be too late is poison, with the limit in its cause."""
    at = Bench(policy=EVER)
    delivery = at.run(Letter(1))
    for _ in range(2):
        assert isinstance(fail(at, delivery), Hold)
        at.now += 4
        assert at.want() is delivery
    poison = fail(at, delivery)
    assert isinstance(poison, PoisonAck)
    assert (poison.cause.text, poison.count) == (f"{CAUSE.text} (after 10 s)", 3)
    assert delivery.record is not None
    assert delivery.record.exhausted
    assert delivery.outcome == "poisoned"


@pytest.mark.parametrize(("handler", "kind"), [(2.0, Hold), (2.002, PoisonAck)])
def test_the_time_of_handlers_counts(handler: float, kind: type) -> None:
    """A redelivery that begins exactly at the limit is made; a millisecond later none is."""
    at = Bench(policy=EVER)
    delivery = at.run(Letter(1))
    fail(at, delivery)
    at.now += 4
    assert at.want() is delivery
    at.now += handler
    assert isinstance(fail(at, delivery), kind)


def test_the_maximum_of_redeliveries_holds_as_well() -> None:
    """The limit that is reached first ends the redeliveries; the maximum leaves the failure's cause unchanged."""
    at = Bench(policy=RedeliveryPolicy(maximum_redeliveries=0, maximum_elapsed=10))
    poison = fail(at, at.run(Letter(1)))
    assert isinstance(poison, PoisonAck)
    assert poison.cause == CAUSE


def test_a_first_delay_that_is_longer_than_the_limit_is_poison_at_once() -> None:
    """A message whose first delay is longer than the limit is poison at its first failure."""
    at = Bench(policy=RedeliveryPolicy(maximum_elapsed=0.5))
    assert isinstance(fail(at, at.run(Letter(1))), PoisonAck)


def test_deferrals_do_not_begin_the_time() -> None:
    """Deferrals do not start the time: only charged failures do."""
    at = Bench(policy=EVER)
    delivery = at.run(Letter(1))
    at.feed(Deferred(delivery, 30.0, CAUSE))
    at.now += 30
    assert at.want() is delivery
    assert isinstance(fail(at, delivery), Hold)


def test_the_policy_of_the_exception_has_a_limit_of_its_own() -> None:
    """The limit of the exception's policy is used, not that of the destination's."""
    at = Bench()
    delivery = at.run(Letter(1))
    (command, *_) = at.feed(Failed(delivery, CAUSE, RedeliveryPolicy(maximum_elapsed=0.5)))
    assert isinstance(command, PoisonAck)


def test_the_time_goes_on_over_a_lost_connection() -> None:
    """The first failure is remembered together with the count."""
    at = Bench(policy=EVER)
    letter = Letter(1)
    fail(at, at.run(letter))
    at.lose()
    at.now += 7
    at.connect()
    at.again(letter)
    delivery = at.want()
    assert delivery is not None
    assert isinstance(fail(at, delivery), PoisonAck)


def test_a_clock_that_was_set_back_does_not_lengthen_the_time() -> None:
    """A first failure in the future counts as one of now: no message fails for ever."""
    at = Counted(policy=EVER)
    delivery = at.begun(
        Letter(1), Entry(count=1, first=at.now + WALL_OFFSET + 1e6, last=at.now + WALL_OFFSET - 10)
    )
    assert isinstance(at.fail(delivery)[1], Hold)
    assert delivery.record is not None
    assert delivery.record.first_failure == at.now


def test_with_a_ledger_the_time_outlives_the_process() -> None:
    """The first failure is written; in the next process a message that fails too late is poison."""
    before = Counted(policy=EVER)
    delivery = before.begun(Letter(1))
    entry = cleared(before.fail(delivery)).entry
    assert entry is not None
    assert entry.first == before.now + WALL_OFFSET
    for later, kind in ((5.0, Hold), (6.5, PoisonAck)):
        after = Counted(policy=EVER)
        after.now += later
        again = after.begun(Letter(1), entry)
        commands = after.fail(again)
        assert isinstance(commands[1], kind), later
    assert cleared(commands).entry == Entry(
        count=2,
        cause=f"{CAUSE.text} (after 10 s)",
        first=entry.first,
        last=after.now + WALL_OFFSET,
        poisoned=True,
    )


def test_a_message_that_kills_its_processes_has_a_limit_of_time_too() -> None:
    """Crashes are charged by the ledger; above the limit the message is poison before a dispatch."""
    at = Counted(policy=EVER)
    now = at.now + WALL_OFFSET
    _, commands = at.known(Letter(1), Entry(count=3, cause=CRASH, first=now - 16, last=now - 5, suspect=True))
    assert isinstance(commands[0], PoisonAck)
    assert commands[0].cause.text == f"{CRASH} (after 10 s)"
    # The last one was in time: one more is allowed.
    _, commands = at.known(Letter(2), Entry(count=3, cause=CRASH, first=now - 16, last=now - 6))
    assert isinstance(commands[-1], Dispatch)


def test_a_delayed_copy_carries_the_first_failure() -> None:
    """The time continues if the broker delays the message, in another process as well."""
    at = bench(ATOMIC, policy=EVER)
    headers = one(at.fail(at.run(Letter(1)))).copy.headers
    other = bench(ATOMIC, policy=EVER)
    other.now += 4
    come(other, headers)
    delivery = other.want()
    assert delivery is not None
    assert one(other.fail(delivery)).delayed
    other.now += 3
    come(other, headers, 8)
    delivery = other.want()
    assert delivery is not None
    last = one(other.fail(delivery))
    assert (last.delayed, last.cause.text) == (False, f"{CAUSE.text} (after 10 s)")


def test_the_limit_fits_into_a_cause() -> None:
    """A long cause is cut, but not the limit that was added to it."""
    at = Bench(policy=RedeliveryPolicy(maximum_elapsed=0.25))
    delivery = at.run(Letter(1))
    (poison, *_) = at.feed(Failed(delivery, Cause("x" * CAUSE_LIMIT)))
    assert isinstance(poison, PoisonAck)
    assert len(poison.cause.text) == CAUSE_LIMIT
    assert poison.cause.text.endswith("x (after 0.25 s)")


def record(count: int, first: float | None) -> Record:
    made = Record(count)
    made.first_failure = first
    return made


@pytest.mark.parametrize(
    ("policy", "known", "last"),
    [
        (RedeliveryPolicy(maximum_redeliveries=0), None, True),
        (RedeliveryPolicy(maximum_redeliveries=1), None, False),
        (RedeliveryPolicy(maximum_redeliveries=1), record(1, 90.0), True),
        (RedeliveryPolicy(maximum_redeliveries=-1), record(1000, 0.0), False),
        (EVER, None, False),
        (EVER, record(1, 94.0), False),
        (EVER, record(1, 93.9), True),
        (EVER, record(1, 1e6), False),
        (RedeliveryPolicy.from_delays([]), None, True),
        (RedeliveryPolicy(maximum_elapsed=0.5), None, True),
        (Own(maximum=2), record(2, 0.0), True),
    ],
)
def test_whether_a_failure_now_would_be_poison(policy: Any, known: Record | None, last: bool) -> None:
    """A failure is poison by count, or because the next redelivery would be too late, as asked at 100 s."""
    before = None if known is None else (known.count, known.first_failure, known.cause)
    assert would_exhaust(policy, known, 100.0) is last
    assert before == (None if known is None else (known.count, known.first_failure, known.cause))


@given(
    maximum=st.integers(-1, 5),
    limit=st.none() | st.integers(1, 20_000),
    delays=st.lists(st.integers(0, 5000), min_size=1, max_size=4),
    handlers=st.lists(st.integers(0, 3000), min_size=1, max_size=4),
)
def test_what_is_said_beforehand_is_what_happens(
    maximum: int, limit: int | None, delays: list[int], handlers: list[int]
) -> None:
    """`last_delivery` is true just before the failure that poisons, and no redelivery begins after the limit."""
    policy = RedeliveryPolicy(
        maximum_redeliveries=maximum,
        initial_redelivery_delay=delays[0] / 1000,
        redelivery_delay=delays[-1] / 1000,
        maximum_elapsed=None if limit is None else limit / 1000,
    )
    at = Bench(policy=policy)
    delivery = at.run(Letter(1))
    first = None
    for place in range(8):
        at.now += handlers[place % len(handlers)] / 1000
        first = at.now if first is None else first
        said = would_exhaust(policy, delivery.record, at.now)
        command = fail(at, delivery)
        assert said is isinstance(command, PoisonAck)
        if said:
            break
        assert limit is None or round((command.due - first) * 1000) <= limit
        at.now = command.due
        assert at.want() is delivery

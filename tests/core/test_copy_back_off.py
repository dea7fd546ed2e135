"""Back-off of copies by place: one place may be down while another takes copies."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.core.bench import CAUSE, CONFIRMED_FORWARD, Bench
from tests.core.copies import Copy
from tests.core.model import Letter

from redelivery.core.broker_redelivery import BrokerRedelivery
from redelivery.core.capabilities import Capabilities
from redelivery.core.commands import Forward, Postponed
from redelivery.core.dead_lettering.routing import DeadLetterRouting
from redelivery.core.events import Confirmed, Deferred, Tick
from redelivery.core.pending_confirms import CopyBackOffs
from redelivery.errors import AdapterError

if TYPE_CHECKING:
    from redelivery.core.commands import Command
    from redelivery.core.pending_confirms import Place

DEAD: Place = ("queue://DLQ", False, 0)
DELAYED: Place = ("queue://orders", True, 0)
HOUR, DAY = 3600.0, 86400.0
QUEUES = replace(CONFIRMED_FORWARD, reschedule="confirmed", delay_digits=2)


def test_a_confirmed_copy_elsewhere_ends_no_back_off() -> None:
    """Copies that another place confirms change nothing for the place that is down, over all connections."""
    places, now = CopyBackOffs(), 100.0
    waits: list[float] = []
    for _ in range(4):
        letter, delayed = Copy("a"), Copy("b")
        places.sent(letter, DEAD)
        places.sent(delayed, DELAYED)
        places.confirmed(delayed)
        found = places.lost(now)
        until = places.of(DEAD).waits_until(now)
        waits.append(0.0 if until is None else until - now)
        assert [delivery for delivery, _ in found] == ([letter] if waits[-1] else [])
        assert places.of(DELAYED).waits_until(now) is None
        now += 100.0
    assert waits == [0.0, 1.0, 2.0, 4.0]


def test_a_confirmation_ends_the_back_off_of_its_place() -> None:
    """A place that confirms a copy has no back-off any more, and no error."""
    places, letter = CopyBackOffs(), Copy("a")
    places.sent(letter, DEAD)
    places.refused(letter, AdapterError("it is full"), 0.0)
    places.sent(letter, DEAD)
    places.lost(1.0)
    assert str(places.error) == "it is full"
    places.sent(letter, DEAD)
    places.confirmed(letter)
    assert (places.error, places.of(DEAD).waits_until(1.0)) == (None, None)


def of(milliseconds: int) -> Place:
    """Return the delay queue of a source for a delay."""
    return "queue://orders", True, milliseconds


def test_a_delay_queue_that_is_down_waits_alone() -> None:
    """A delay queue that refuses copies has a back-off that grows, while another one takes all its copies at once."""
    at = Bench(
        able=QUEUES,
        dead_letters=DeadLetterRouting(scheduled=True),
        rescheduling=BrokerRedelivery("queue://orders", "run"),
    )
    tried: list[float] = []
    postponed: set[float] = set()

    def answer(commands: list[Command]) -> None:
        for command in commands:
            sent = command.command if isinstance(command, Postponed) else command
            if not isinstance(sent, Forward):
                continue
            down = (sent.copy.delay or 0.0) > HOUR
            if isinstance(command, Postponed):
                postponed.add(DAY if down else HOUR)
                continue
            if down:
                tried.append(at.now - 100.0)
            answer(at.feed(Confirmed(sent.delivery, AdapterError("it is down") if down else None)))

    for number in range(100):
        for delay in (DAY, HOUR):
            answer(at.feed(Deferred(at.run(Letter(2 * number + (delay == DAY))), delay, CAUSE)))
        at.now += 1.0
        answer(at.feed(Tick()))
    assert tried == [0, 1, 3, 7, 15, 31, 61, 91]
    assert postponed == {DAY}


def test_delay_queues_that_are_all_down_end_few_connections() -> None:
    """Connections that are lost after a copy each to another delay queue count together, until one queue confirms."""
    places, now = CopyBackOffs(), 100.0
    waits: list[float] = []
    for number in range(1, 6):
        places.sent(Copy("a"), of(number))
        places.lost(now)
        until = places.waits_until(of(99), now)
        waits.append(0.0 if until is None else until - now)
        now += 100.0
    assert waits == [0.0, 1.0, 2.0, 4.0, 8.0]
    copy = Copy("b")
    places.sent(copy, of(98))
    places.confirmed(copy)
    assert (places.error, places.waits_until(of(99), now)) == (None, None)


def test_a_loss_is_reported_once_for_a_copy() -> None:
    """A copy that is the first of its delay queue, and of all, is reported with the longer of the two waits."""
    places, copy, other = CopyBackOffs(), Copy("a"), Copy("b")
    for now in (0.0, 10.0):
        places.sent(copy, of(1))
        places.refused(copy, AdapterError("it is down"), now)
    places.sent(other, of(2))
    places.confirmed(other)
    places.sent(copy, of(1))
    assert places.lost(20.0) == [(copy, places.of(of(1)))]
    places.sent(copy, of(1))
    ((delivery, state),) = places.lost(30.0)
    assert (delivery, state.waits_until(30.0)) == (copy, 32.0)
    assert str(places.error) == "it is down"


def test_a_delay_has_the_digits_of_its_queue() -> None:
    """A delay is rounded up to the digits that name its queue, and is never longer than the broker's longest one."""
    able = Capabilities("model", delay_digits=2, longest_delay=50.0)
    assert [able.delay_ms(each) for each in (0.0, 0.001, 0.099, 1.234, 49.5, 49.95, 60.0)] == [
        1, 1, 99, 1300, 50_000, 50_000, 50_000,
    ]  # fmt: skip
    assert Capabilities("model").delay_ms(1.2341) == 1235

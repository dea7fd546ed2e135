"""Room for parked messages in a window set by the subscription: requested, and given back."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import pytest
from tests.core.bench import CAUSE, Bench
from tests.core.credit_world import WINDOW
from tests.core.model import Letter

from redelivery.core.breaker import Breaker
from redelivery.core.commands import Credit
from redelivery.core.credit import CreditWindow
from redelivery.core.events import Continued, Failed, Paused, Succeeded, Tick

if TYPE_CHECKING:
    from redelivery.core.events import Event


def asked(credit: int, max_parked: int, *parked: int) -> list[int]:
    """Return the requested messages while so many are parked, one number after the other; 0: none."""
    window = CreditWindow(1, credit, max_parked)
    window.restart(active=False, grows=True)
    due = [window.due(number) if window.active or window.grows else None for number in parked]
    assert all(each is None or each.consumer == 1 for each in due)
    return [0 if each is None else each.messages for each in due]


@pytest.mark.parametrize(
    ("credit", "max_parked", "parked", "expected"),
    [
        # A quarter of a small credit is one message.
        (4, 1000, (0, 1, 2, 3), [0, 1, 1, 1]),
        # Three quarters of a large one are always left.
        (100, 1000, (24, 25, 40, 60), [0, 25, 0, 35]),
        # No more than may be parked; less than a quarter leaves enough.
        (4, 3, (2, 9, 9), [2, 1, 0]),
        (1000, 160, (160,), [0]),
        # A finished message may be followed by another one: its room stays.
        (4, 1000, (5, 4, 5, 4, 3), [5, 0, 0, 0, -2]),
        (4, 1000, (50, 0, 1), [50, -50, 1]),
        (100, 1000, (50, 1, 0), [50, 0, -50]),
    ],
)
def test_room_follows_what_is_parked(
    credit: int, max_parked: int, parked: tuple[int, ...], expected: list[int]
) -> None:
    """Room grows in steps of a quarter of the credit: messages that fail one by one need no subscription each."""
    assert asked(credit, max_parked, *parked) == expected


def test_a_new_connection_begins_without_room() -> None:
    """A new connection starts without room: its subscription has the first window."""
    window = CreditWindow(1, 4, 1000)
    window.restart(active=False, grows=True)
    assert window.due(3) == Credit(1, 3)
    window.restart(active=False, grows=True)
    assert window.due(3) == Credit(1, 3)


def test_flow_grants_all_of_it() -> None:
    """With flow, all credit is granted, whether the window could grow or not."""
    window = CreditWindow(1, 4, 1000)
    window.restart(active=True, grows=True)
    assert window.due(2) == Credit(1, 6)


def test_nothing_is_granted_by_taking_credit_back() -> None:
    """Withdrawn credit grants nothing, although more messages arrived than were granted: they had been sent before."""
    window = CreditWindow(1, 10, 1000)
    window.restart(active=True)
    assert window.due(0) == Credit(1, 10)
    window.arrived = 1
    assert window.withdrawn() == (Credit(1, -9),)
    window.arrived += 4
    assert window.withdrawn() == (Credit(1, 0),)
    assert window.late == 0


@pytest.mark.parametrize("paused", [False, True], ids=["breaker", "pause"])
def test_parked_messages_get_their_room_also_after_handling_paused(*, paused: bool) -> None:
    """A window is not granted for arrivals while handling pauses; afterwards parked messages get room as before."""
    bench = Bench(able=WINDOW, credit=4, max_parked=1000, breaker=Breaker(named=2))
    numbers = count()

    def asked(*events: Event) -> list[int]:
        found = [command for event in events for command in bench.feed(event)]
        return [command.messages for command in found if isinstance(command, Credit)]

    for _ in range(100):
        bench.succeed(bench.run(Letter(next(numbers))))
    first, second = (bench.run(Letter(next(numbers))) for _ in range(2))
    assert asked(Failed(first, CAUSE, weight="outage")) == [1]
    if paused:
        assert asked(Failed(second, CAUSE), Paused(), Tick(), Continued()) == [1]
    else:
        assert asked(Failed(second, CAUSE, weight="outage")) == [1]
    # Each parked one is handled when it is due, and fresh ones between them.
    bench.now += 3600
    while bench.engine.load.parked or bench.engine.load.breaker_state != "closed":
        if (delivery := bench.want()) is None:
            bench.arrive(Letter(next(numbers)))
        else:
            assert not [each for each in asked(Succeeded(delivery), Tick()) if each > 0]
    parked = [bench.run(Letter(next(numbers))) for _ in range(2)]
    assert sum(asked(*(Failed(each, CAUSE) for each in parked))) == 2

"""Room for parked messages in a window set by the subscription: requested, and given back."""

from __future__ import annotations

import pytest

from redelivery.core.commands import Credit
from redelivery.core.credit import CreditWindow


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

"""Room for what is parked, where the window was given when subscribing: asked for, and given back."""

from __future__ import annotations

import pytest

from redelivery.core.commands import Credit
from redelivery.core.credit import CreditWindow


def asked(credit: int, max_parked: int, *parked: int) -> list[int]:
    """Return what is asked for while so many are parked, one number after the other; 0: nothing."""
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
        # Of a large one there is always three quarters left.
        (100, 1000, (24, 25, 40, 60), [0, 25, 0, 35]),
        # No more than may be parked; fewer than a quarter leave enough.
        (4, 3, (2, 9, 9), [2, 1, 0]),
        (1000, 160, (160,), [0]),
        # One that is done may be followed by another: room for it stays.
        (4, 1000, (5, 4, 5, 4, 3), [5, 0, 0, 0, -2]),
        (4, 1000, (50, 0, 1), [50, -50, 1]),
        (100, 1000, (50, 1, 0), [50, 0, -50]),
    ],
)
def test_room_follows_what_is_parked(
    credit: int, max_parked: int, parked: tuple[int, ...], expected: list[int]
) -> None:
    """In steps of a quarter of the credit, so that messages which fail one by one cost no subscription each."""
    assert asked(credit, max_parked, *parked) == expected


def test_a_new_connection_begins_without_room() -> None:
    """Its subscription has the window of the first."""
    window = CreditWindow(1, 4, 1000)
    window.restart(active=False, grows=True)
    assert window.due(3) == Credit(1, 3)
    window.restart(active=False, grows=True)
    assert window.due(3) == Credit(1, 3)


def test_flow_grants_all_of_it() -> None:
    """Where there is flow, that the window could grow changes nothing."""
    window = CreditWindow(1, 4, 1000)
    window.restart(active=True, grows=True)
    assert window.due(2) == Credit(1, 6)


def test_nothing_is_granted_by_taking_credit_back() -> None:
    """What was on its way when it was taken back before has come since: more than was granted then."""
    window = CreditWindow(1, 10, 1000)
    window.restart(active=True)
    assert window.due(0) == Credit(1, 10)
    window.arrived = 1
    assert window.withdrawn() == (Credit(1, -9),)
    window.arrived += 4
    assert window.withdrawn() == (Credit(1, 0),)
    assert window.late == 0

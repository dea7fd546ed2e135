"""Back-off of copies by place: one place may be down while another takes copies."""

from __future__ import annotations

from tests.core.copies import Copy

from redelivery.core.pending_confirms import CopyBackOffs
from redelivery.errors import AdapterError

DEAD, DELAYED = ("queue://DLQ", False), ("queue://orders", True)


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

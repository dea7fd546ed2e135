"""Credit on a link: the sender gets what was granted, also after a withdrawal that was too late."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.amqp.peer import proton

from redelivery_amqp import io_thread

LIB: Any = vars(io_thread)["lib"]

if TYPE_CHECKING:
    from collections.abc import Callable


class Ends:
    """Two ends of a link; bytes are carried between them when the test says so."""

    def __init__(self, window: int | None = None) -> None:
        """`window`: bytes of the session's incoming window; None: no limit."""
        self.near, self.far = (
            proton.Transport(proton.Transport.CLIENT),
            proton.Transport(proton.Transport.SERVER),
        )
        mine, theirs = proton.Connection(), proton.Connection()
        mine.container, theirs.container = "near", "far"
        self.near.bind(mine)
        self.far.bind(theirs)
        mine.open()
        theirs.open()
        session = mine.session()
        if window is not None:
            session.incoming_capacity = window
        session.open()
        self.receiver = session.receiver("orders")
        self.receiver.open()
        self.carry()
        theirs.session_head(0).open()
        self.sender = theirs.link_head(0)
        self.sender.open()
        self.carry()

    def taken(self, end: Any) -> bytes:
        waiting = end.pending()
        other = self.far if end is self.near else self.near
        data: bytes = end.peek(min(waiting, other.capacity())) if waiting > 0 else b""
        end.pop(len(data))
        return data

    def carry(self) -> None:
        """Carry all bytes both ways."""
        while True:
            there, back = self.taken(self.near), self.taken(self.far)
            if there:
                self.far.push(there)
            if back:
                self.near.push(back)
            if not (there or back):
                return

    def send(self, many: int) -> None:
        for number in range(many):
            self.sender.delivery(f"{self.sender.credit}-{number}")
            self.sender.send(b"x")
            self.sender.advance()

    def flow(self, credit: int) -> None:
        flow: Callable[[Any, Any, int], None] = io_thread.ProtonEngine.flow
        flow(None, self.receiver._impl, credit)


@pytest.mark.parametrize(("granted", "late"), [(5, 5), (5, 3), (1000, 131)])
@pytest.mark.parametrize("more", [1, 4, 869])
def test_a_grant_comes_on_top_of_what_came_too_late(granted: int, late: int, more: int) -> None:
    """New credit is not reduced by messages that arrived after a withdrawal."""
    ends = Ends()
    ends.flow(granted)
    ends.carry()
    ends.send(late)
    on_its_way = ends.taken(ends.far)
    ends.flow(-granted)
    ends.near.push(on_its_way)
    while ends.receiver.current:
        ends.receiver.advance()
    assert LIB.pn_link_credit(ends.receiver._impl) == -late
    ends.flow(more)
    ends.carry()
    assert ends.sender.credit == more


def test_no_more_is_taken_back_than_is_left() -> None:
    """A withdrawal never makes the credit negative, whatever has arrived meanwhile."""
    ends = Ends()
    ends.flow(5)
    ends.carry()
    ends.send(2)
    ends.carry()
    while ends.receiver.current:
        ends.receiver.advance()
    ends.flow(-5)
    ends.carry()
    assert (ends.sender.credit, LIB.pn_link_credit(ends.receiver._impl)) == (0, 0)

"""Credit: how many messages more the broker may send."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.core.commands import Credit
from redelivery.core.events import Succeeded, Wanted

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["PARKING_NOTHING", "CreditWindow"]

# The two events of each message that is done at once. Neither parks one: what a `Wanted` condemns has an answer soon.
PARKING_NOTHING = frozenset((Succeeded, Wanted))


class CreditWindow:
    """Keeps `credit` messages coming besides those that are parked, up to `max_parked` of them.

    Where there is flow, all of it is granted. Where the window was given when subscribing and grows, the broker grants
    what is settled by itself: only room for what is parked is asked for, and given back.
    """

    __slots__ = (
        "_aside", "_consumer", "_credit", "_granted", "_max_parked", "_step", "_widens", "active", "arrived", "grows",
        "late", "settled",
    )  # fmt: skip

    def __init__(self, consumer: int, credit: int, max_parked: int) -> None:
        self._consumer = consumer
        self._credit = credit
        self._max_parked = max_parked
        # A flow frame per quarter of the credit.
        self._step = max(1, credit // 4)
        self.restart(active=False)

    def restart(self, *, active: bool, grows: bool = False) -> None:
        """Begin a connection, where credit is granted by flow, or a window grows, or neither."""
        self._widens = grows and not active
        self._aside = 0
        # With a step that is never reached, most of the credit is left whatever is parked.
        self.grows = self._widens and self._max_parked >= self._step
        # With a window that grows: while it has grown, as room may have to be given back.
        self.active = active
        self.arrived = self.settled = self._granted = 0
        # How many messages may still come that were on their way when credit was withdrawn.
        self.late = 0

    def set_aside(self, messages: int) -> None:
        """Learn that so many messages more are set aside; fewer, if it is negative. They take none of the credit."""
        if not self._widens:
            # With flow it is as if they were settled. What is given back comes again, and is set aside again.
            self.settled += max(0, messages)
            return
        self._aside += messages
        self.grows = self._max_parked + self._aside >= self._step or self.active

    def due(self, parked: int) -> Credit | None:
        """Return the credit to grant now, if it is worth a frame."""
        parked = min(parked, self._max_parked)
        if self.grows:
            wanted = parked + self._aside - self._granted
            # More must be free before it is given back: messages that fail one by one must not make and end room.
            if -2 * self._step < wanted < self._step:
                return None
        else:
            wanted = self.settled + self._credit + parked - self._granted
            if wanted <= 0 or (wanted < self._step and self._granted > self.arrived):
                return None
        self._granted += wanted
        self.active = self._granted > 0 or not self.grows
        return Credit(self._consumer, wanted)

    def limited(self, ready: int, most: int) -> Credit | None:
        """Return the credit to grant while only `most` messages may be here, of which `ready` are.

        Only where there is flow.
        """
        # What came after the credit was withdrawn had been on its way.
        self._granted = max(self._granted, self.arrived)
        wanted = most - ready - (self._granted - self.arrived)
        if wanted <= 0:
            return None
        self._granted += wanted
        return Credit(self._consumer, wanted)

    def withdrawn(self) -> Sequence[Credit]:
        """Return the command that takes back what credit is left: what came now would only be given back."""
        if self.grows or not self.active:
            return ()
        left = self._granted - self.arrived
        self._granted -= left
        self.late = max(0, left)
        return (Credit(self._consumer, -left),)

"""Credit: how many messages more the broker may send."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from redelivery.core.commands import Credit
from redelivery.core.events import Succeeded, Wanted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redelivery.core.credit_pace import CreditPace

__all__ = ["PARKING_NOTHING", "CreditWindow"]

# The two events of each message that is done at once. Neither parks one: what a `Wanted` condemns has an answer soon.
PARKING_NOTHING = frozenset((Succeeded, Wanted))
# Messages: a window that only grows is asked for so many at least when messages are parked, or a quarter of what it is.
# One that grew with each message that fails would be of as many subscriptions.
LEAST, PART = 16, 4
# The same where each subscription may lose a message when the link is cut: Artemis (docs/measured/stomp.md, n).
LEAST_OF_FEW = 100


class CreditWindow:
    """Keeps `credit` messages coming besides those that are parked, up to `max_parked` of them.

    Where there is flow, all of it is granted. Where the window was given when subscribing and grows, the broker grants
    what is settled by itself: only room for what is parked is asked for, and given back.

    With a `pace` the credit is what that says. Where the window grows, it then grows for good: by what the pace adds,
    and by what is parked.
    """

    __slots__ = (
        "_aside",
        "_consumer",
        "_credit",
        "_first",
        "_granted",
        "_least", "_max_parked",
        "_pace",
        "_step",
        "_widens",
        "active",
        "arrived",
        "due_at",
        "due_by",
        "grows",
        "late",
        "settled",
        "waits",
    )  # fmt: skip

    def __init__(self, consumer: int, credit: int, max_parked: int, pace: CreditPace | None = None) -> None:
        self._consumer = consumer
        self._max_parked = max_parked
        self._pace = pace
        self._first = credit if pace is None else pace.credit
        self._set(self._first)
        self.restart(active=False)

    def _set(self, credit: int) -> None:
        self._credit = credit
        # A flow frame per quarter of the credit.
        self._step = max(1, credit // 4)

    def restart(self, *, active: bool, grows: bool = False, few: bool = False) -> None:
        """Begin a connection, where credit is granted by flow, or a window grows, or neither.

        `few`: the window is to grow in as few steps as can be.
        """
        self._least = LEAST_OF_FEW if few else LEAST
        self._widens = grows and not active
        self._aside = 0
        if self._pace is not None:
            self._pace.restart(shrinks=active)
            self._set(self._pace.credit)
        self.due_at = self.due_by = inf
        self._look_again(paced=active or self._widens)
        # How often a worker has found nothing.
        self.waits = 0
        # With a step that is never reached, most of the credit is left whatever is parked.
        self.grows = self._widens and (self._pace is not None or self._max_parked >= self._step)
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
        # Asked for with this event, whatever it is: with a window full of them no other may follow.
        self.due_at = 0
        if self._pace is None:
            self.grows = self._max_parked + self._aside >= self._step or self.active

    @property
    def credit(self) -> int:
        """How many messages the broker may leave unsettled here, besides those that are parked."""
        return self._credit

    @property
    def asks_above(self) -> int:
        """How many messages the application may have before `held` must be asked."""
        return self._credit if self._pace is None else (self._credit + 1) // 2

    def held(self, running: int) -> None:
        """Take how many messages the application has: it may need more before it settles the first."""
        if self._pace is not None and self._pace.held(running):
            self._set(self._pace.credit)
            # What follows is asked for with this event.
            self.due_at = 0

    def look(self, now: float, ready: int) -> bool:
        """Follow the pace, at `due_at` settled messages or `due_by`; return whether the credit has changed."""
        pace = self._pace
        changed = pace is not None and pace.look(now, self.settled, self.waits, ready)
        if pace is not None and changed:
            self._set(pace.credit)
        self._look_again(paced=True)
        return changed

    def _look_again(self, *, paced: bool) -> None:
        pace = self._pace if paced else None
        self.due_at = inf if pace is None else pace.due_at
        self.due_by = inf if pace is None else pace.due_by

    def due(self, parked: int) -> Credit | None:
        """Return the credit to grant now, if it is worth a frame."""
        parked = min(parked, self._max_parked)
        if self._widens and self._pace is not None:
            return self._widened(parked)
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

    def _widened(self, parked: int) -> Credit | None:
        """Return what a window is to grow by for good, if it is too small for the credit and what is parked."""
        assert self._pace is not None
        room = self._first + self._granted
        wanted = self._credit + parked + self._aside - room
        if wanted < self._step:
            return None
        most = self._pace.most + self._max_parked + self._aside - room
        if self._credit <= room:
            wanted = max(wanted, self._least, room // PART)
        wanted = min(wanted, most)
        if wanted <= 0:
            return None
        self._granted += wanted
        return Credit(self._consumer, wanted, widens=True)

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
        # More may have come than that, after credit was taken back before. That is no reason to grant any.
        left = self.late = max(0, self._granted - self.arrived)
        self._granted -= left
        return (Credit(self._consumer, -left),)

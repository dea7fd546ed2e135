"""Credit: the number of messages that the broker may still send to a consumer."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from redelivery.core.commands import Credit
from redelivery.core.events import Succeeded, Wanted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redelivery.core.credit_pace import CreditPace
    from redelivery.core.delivery import Delivery

__all__ = ["PARKING_NOTHING", "CreditWindow"]

# The two events of a message that is accepted at once. Neither parks a message: a poison acknowledgement that `Wanted`
# begins is answered soon.
PARKING_NOTHING = frozenset((Succeeded, Wanted))
# Messages. A window that only grows is widened for parked messages by at least LEAST, or by a quarter of its size
# (PART). One widened for each failed message would consist of as many subscriptions.
LEAST, PART = 16, 4
# The same where each subscription may lose a message when the connection is cut: Artemis
# (docs/measured/artemis-stomp-cuts.md, "A cut connection loses its first message").
LEAST_OF_FEW = 100


class CreditWindow:
    """Lets the broker send up to `credit` messages in addition to the parked ones, of which `max_parked` are allowed.

    With flow, the whole credit is granted by commands. With a window that was set by the subscription and grows, the
    broker itself grants the credit of settled messages again: only room for parked messages is requested, and given
    back.

    With a `pace`, the pace sets the credit. A window that grows then never shrinks: it is widened by the credit that
    the pace adds, and by the number of parked messages. If larger messages arrive, credit is withdrawn where it flows;
    those that are on their way arrive nevertheless.
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
        "_too_much",
        "_widens",
        "active",
        "arrived",
        "due_at",
        "due_by",
        "grows",
        "late",
        "settled",
        "sized",
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
        # Grant a quarter of the credit at a time: one flow frame for it.
        self._step = max(1, credit // 4)

    def restart(self, *, active: bool, grows: bool = False, few: bool = False) -> None:
        """Start on a connection: credit is granted by flow (`active`), or the window `grows`, or neither.

        `few`: the window grows in as few steps as possible.
        """
        self._least = LEAST_OF_FEW if few else LEAST
        self._widens = grows and not active
        self._aside = 0
        if self._pace is not None:
            self._pace.restart(shrinks=active)
            self._set(self._pace.credit)
        self.due_at = self.due_by = inf
        self._look_again(paced=active or self._widens)
        # True once credit is to be withdrawn, because it is too much for the size of what arrives.
        self._too_much = False
        # True if `weigh` must be called.
        self.sized = self._pace is not None and (active or self._widens)
        # How often a worker has found no message.
        self.waits = 0
        # If the step is never reached, enough credit is left however many messages are parked.
        self.grows = self._widens and (self._pace is not None or self._max_parked >= self._step)
        # With a window that grows: true once it has grown, because room may have to be given back.
        self.active = active
        self.arrived = self.settled = self._granted = 0
        # How many messages may still arrive that the broker sent before the credit was withdrawn.
        self.late = 0

    @property
    def by_command(self) -> bool:
        """True with flow: nothing arrives that was not granted. A window's credit is granted again by the broker."""
        return self.active and not self.grows

    def set_aside(self, messages: int) -> None:
        """Note that `messages` more are set aside (fewer, if negative). They use none of the credit."""
        if not self._widens:
            # With flow they count as settled. A released one is redelivered and set aside again.
            self.settled += max(0, messages)
            return
        self._aside += messages
        # Request room with this event: if such messages fill the window, no further event may arrive.
        self.due_at = 0
        if self._pace is None:
            self.grows = self._max_parked + self._aside >= self._step or self.active

    @property
    def credit(self) -> int:
        """Number of messages that the broker may leave unsettled here in addition to the parked ones."""
        return self._credit

    @property
    def asks_above(self) -> int:
        """Number of running messages above which `held` must be called."""
        return self._credit if self._pace is None else (self._credit + 1) // 2

    def held(self, running: int) -> None:
        """Take the number of messages the application has: it may need more before it settles the first."""
        if self._pace is not None and self._pace.held(running):
            self._set(self._pace.credit)
            # Request the additional credit with this event.
            self.due_at = 0

    def weigh(self, deliveries: Sequence[Delivery], running: int) -> bool:
        """Take deliveries that have arrived; return True if the credit has shrunk, because they are large."""
        pace = self._pace
        if pace is None or not pace.weigh(sum(each.size for each in deliveries), len(deliveries), running):
            return False
        self._set(pace.credit)
        self._too_much = self.by_command
        self._look_again(paced=True)
        return True

    def look(self, now: float, ready: int) -> bool:
        """Ask the pace, at `due_at` settled messages or at `due_by`; return True if the credit has changed."""
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
        """Return the credit to grant now; None if it is too little for a frame."""
        parked = min(parked, self._max_parked)
        if self._widens and self._pace is not None:
            return self._widened(parked)
        if self.grows:
            wanted = parked + self._aside - self._granted
            # More must be free before it is given back: room must not be made and ended for each failed message.
            if -2 * self._step < wanted < self._step:
                return None
        else:
            wanted = self.settled + self._credit + parked - self._granted
            too_much, self._too_much = self._too_much, False
            if too_much and wanted < 0:
                return self._reduced(-wanted)
            if wanted <= 0 or (wanted < self._step and self._granted > self.arrived):
                return None
            if self._granted < self.arrived:
                # Those that arrived after a withdrawal had been sent before. They use the credit, too.
                wanted -= self.arrived - self._granted
                self._granted = self.arrived
                if wanted <= 0:
                    return None
        self._granted += wanted
        self.active = self._granted > 0 or not self.grows
        return Credit(self._consumer, wanted)

    def _reduced(self, excess: int) -> Credit | None:
        """Return the command that takes back what is above the credit, as far as it is not used yet."""
        back = min(excess, self._granted - self.arrived)
        if back <= 0:
            return None
        self._granted -= back
        return Credit(self._consumer, -back)

    def _widened(self, parked: int) -> Credit | None:
        """Return the credit that widens the window, if it is too small for the credit and the parked messages."""
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
        """Return the credit to grant while at most `most` messages may be here; `ready` of them are here already.

        For flow only: of a window, each arrival would count as room for a parked message.
        """
        # Messages that arrived after the credit was withdrawn had been sent before.
        self._granted = max(self._granted, self.arrived)
        wanted = most - ready - (self._granted - self.arrived)
        if wanted <= 0:
            return None
        self._granted += wanted
        return Credit(self._consumer, wanted)

    def withdrawn(self) -> Sequence[Credit]:
        """Return the command that takes back the unused credit: messages that arrived now would only be released."""
        if not self.by_command:
            return ()
        # More messages may have arrived than were granted, after an earlier withdrawal. That grants nothing.
        left = self.late = max(0, self._granted - self.arrived)
        self._granted -= left
        return (Credit(self._consumer, -left),)

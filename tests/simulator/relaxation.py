"""Messages that may be accepted unseen although no handler succeeded with them: the one relaxation of identity.

"A weak key with a creation time, equal in every byte, is taken for the same message sent twice", on the connection that
follows the one where it was accepted, unless the broker has sent both. A user who sets `unique_ids` says so of a copy's
id, too.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from tests.simulator.sim_delivery import SimDelivery

__all__ = ["Relaxation"]


class Relaxation:
    """Counts, for kin that are `alike` in every byte, how many may be accepted for a success with another."""

    def __init__(self, size: Counter[Hashable]) -> None:
        self._size = size
        self.alike: set[Hashable] = set()
        self._may: Counter[Hashable] = Counter()
        # How many the broker has accepted on this connection, and which were released.
        self._read: Counter[Hashable] = Counter()
        self._given_back: set[Hashable] = set()

    def accepted(self, kin: Hashable) -> None:
        """Record that the broker has read an accept."""
        self._read[kin] += 1

    def given_back(self, kin: Hashable) -> None:
        """Record a release over a connection that stands: there are two such messages."""
        self._given_back.add(kin)

    def taken_elsewhere(self, kin: Hashable) -> None:
        """Record that another process has one: its equal may be accepted by the record of it."""
        if kin in self.alike:
            self._may[kin] = self._size[kin] - 1

    def lost(self, unsettled: Iterable[SimDelivery]) -> None:
        """Record a loss, with the messages that were unsettled, or whose accept the broker has not read."""
        two = set(self._given_back)
        unread: set[Hashable] = set()
        for each in unsettled:
            (unread if each.final == "accept" else two).add(each.message.kin)
        for kin in self.alike:
            many = self._read[kin] + (self._may[kin] if kin in unread else 0)
            self._may[kin] = min(self._size[kin] - 1, many) if kin not in two else 0
        self._read.clear()
        self._given_back.clear()

    def begun_again(self) -> None:
        """Forget acceptances and releases: another process knows none of them."""
        self._may.clear()
        self._read.clear()
        self._given_back.clear()

    def covers(self, kin: Hashable) -> bool:
        """Return True if one more may be accepted; it counts."""
        if not self._may[kin]:
            return False
        self._may[kin] -= 1
        return True

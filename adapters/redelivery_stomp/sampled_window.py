"""A consumer's window in bytes, for a large credit: measures one message of each read, and counts the parked ones."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from redelivery_stomp.byte_windows import MARGIN, MOST_BYTES, ByteWindow, size_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from redelivery.core.commands import Subscribe
    from redelivery.core.delivery import Delivery
    from redelivery_stomp.byte_windows import Part
    from redelivery_stomp.delivery import StompDelivery

__all__ = ["SampledWindow"]


class SampledWindow(ByteWindow):
    """The window of a large credit, in which one message counts little. Only the parked messages are counted."""

    def __init__(self, command: Subscribe, size: int, usual: int) -> None:
        """See `ByteWindow`."""
        super().__init__(command, size, usual)
        # Number of messages that were reported as parked.
        self._told = 0
        self._limit()

    def grow(self, messages: int) -> None:
        super().grow(messages)
        self._limit()

    def came(self, delivery: StompDelivery, number: int) -> None:
        self._take(delivery, number, 0)

    def parks(self, delivery: StompDelivery, number: int) -> None:
        self._take(delivery, number, 0)
        known = self.known.get(delivery)
        if known is not None and not known[1]:
            size = size_of(delivery)
            self.known[delivery] = known[0], size
            known[0].held += size
            self._told += 1
            self._limit()

    def accepted(self, deliveries: Iterable[Delivery]) -> bool:
        if not self._told:
            return super().accepted(deliveries)
        self._told -= sum(bool(self.known[one][1]) for one in deliveries if one in self.known)
        ending = super().accepted(deliveries)
        self._limit()
        return ending

    def further(self) -> Sequence[tuple[int, Subscribe]]:
        begun = super().further()
        self._limit()
        return begun

    def ended(self, number: int) -> None:
        super().ended(number)
        self._limit()

    def _limit(self) -> None:
        room = self._room(self.parts.values()) * MARGIN
        self.limit = room / self.credit if room < MOST_BYTES else inf

    def _needed(self) -> float:
        return min(self.credit * self.usual, MOST_BYTES)

    def _room(self, parts: Collection[Part]) -> float:
        # Not each parked message is reported.
        untold = max(0, self.parked - self._told) * self.usual
        return sum(part.left for part in parts) - untold

    def _lacking(self) -> float:
        parts, needed = self.parts.values(), self._needed()
        room = self._room(parts)
        if room * MARGIN >= needed:
            return 0
        return max(needed - room, self.parts[0].size)

    def _suffices(self, parts: Collection[Part]) -> bool:
        return self._room(parts) >= self._needed() * MARGIN

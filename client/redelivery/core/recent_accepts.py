"""What a consumer has accepted lately: the broker may not have learned of it when the connection is lost."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redelivery.core.delivery import Delivery

__all__ = ["DOUBT", "KEPT", "RecentAccepts"]

# Bytes of bodies kept for digests that nobody may ask for. A broker reads acknowledgements in milliseconds.
KEPT = 1 << 20
HALF = KEPT // 2
# Seconds after which what can only be known by its producer's bytes counts as acknowledged: the broker has read it, or
# the connection has ended for want of heart-beats. Later the same bytes may be sent again on purpose.
DOUBT = 60.0


class RecentAccepts:
    """Deliveries in the order of their acceptance, at most `limit`.

    On the hot path: no identity is computed, and no digest. So what can only be known again by its bytes keeps them.
    """

    __slots__ = ("_bytes", "_deliveries", "_half", "_kept", "_older")

    def __init__(self, limit: int) -> None:
        self._deliveries: deque[Delivery] = deque(maxlen=limit)
        # With the time of each; of the older half the oldest is last. One goes for each that comes: half of them at
        # once would give their pages back to the system, to be asked for again (6 % of the time over STOMP).
        self._kept: list[tuple[Delivery, float]] = []
        self._older: list[tuple[Delivery, float]] = []
        self._half = max(1, limit // 2)
        # Of the newer half.
        self._bytes = 0

    def add(self, delivery: Delivery, now: float) -> None:
        """Take in a delivery: without its body, or, if that may be needed, in place of the oldest ones with theirs."""
        if not delivery.digested:
            self._deliveries.append(delivery.let_go())
            return
        size = delivery.slim()
        self._bytes += size
        if self._bytes > HALF or len(self._kept) >= self._half:
            if size > HALF:
                self._bytes -= size
                return
            self._older, self._kept, self._bytes = self._kept[::-1], [], size
        elif self._older:
            self._older.pop()
        self._kept.append((delivery, now))

    def taken(self, now: float) -> Sequence[Delivery]:
        """Return those of which the broker may not have learned, and keep none."""
        kept = self._older[::-1] + self._kept
        deliveries = [*self._deliveries, *(each for each, at in kept if now - at <= DOUBT)]
        self._deliveries.clear()
        self._older, self._kept, self._bytes = [], [], 0
        return deliveries

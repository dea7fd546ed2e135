"""Recent acceptances of a consumer: if the connection is lost, the broker may not have read their acknowledgements."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redelivery.core.delivery import Delivery

__all__ = ["DOUBT", "KEPT", "RecentAccepts"]

# Bytes of bodies kept for digests that may never be needed. A broker reads acknowledgements in milliseconds.
KEPT = 1 << 20
# Seconds after which an acceptance known only by a producer's bytes counts as acknowledged: the broker has read it, or
# the connection has ended for want of heart-beats. Later the same bytes may be sent again on purpose.
DOUBT = 60.0


class RecentAccepts:
    """Deliveries in the order of their acceptance, at most `limit`.

    On the hot path no identity and no digest is computed. Therefore a message known only by its bytes keeps them.
    """

    __slots__ = ("_bytes", "_deliveries", "_kept", "_limit")

    def __init__(self, limit: int) -> None:
        self._deliveries: deque[Delivery] = deque(maxlen=limit)
        # Of each: its time of acceptance, and its number of bytes.
        self._kept: deque[tuple[Delivery, float, int]] = deque()
        self._bytes = 0
        self._limit = limit

    def add(self, delivery: Delivery, now: float) -> None:
        """Add a delivery, without its body; or with it, if needed, in place of the oldest ones that have theirs."""
        if not delivery.digested:
            self._deliveries.append(delivery.let_go())
            return
        size = delivery.slim()
        if size > KEPT // 2:
            # Keeping it would remove more than half of the others.
            return
        kept = self._kept
        kept.append((delivery, now, size))
        self._bytes += size
        # One by one: many at once would return their pages to the system, only to allocate them again. That costs 6 %
        # of the time over STOMP.
        while self._bytes > KEPT or len(kept) > self._limit:
            self._bytes -= kept.popleft()[2]

    def taken(self, now: float) -> Sequence[Delivery]:
        """Remove and return the acceptances that the broker may not have read."""
        deliveries = [*self._deliveries, *(each for each, at, _ in self._kept if now - at <= DOUBT)]
        self._deliveries.clear()
        self._kept.clear()
        self._bytes = 0
        return deliveries

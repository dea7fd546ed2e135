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
# Seconds after which what can only be known by its producer's bytes counts as acknowledged: the broker has read it, or
# the connection has ended for want of heart-beats. Later the same bytes may be sent again on purpose.
DOUBT = 60.0


class RecentAccepts:
    """Deliveries in the order of their acceptance, at most `limit`.

    On the hot path: no identity is computed, and no digest. So what can only be known again by its bytes keeps them.
    """

    __slots__ = ("_bytes", "_deliveries", "_kept", "_limit")

    def __init__(self, limit: int) -> None:
        self._deliveries: deque[Delivery] = deque(maxlen=limit)
        # Of each: when, and how many bytes.
        self._kept: deque[tuple[Delivery, float, int]] = deque()
        self._bytes = 0
        self._limit = limit

    def add(self, delivery: Delivery, now: float) -> None:
        """Take in a delivery: without its body, or, if that may be needed, in place of the oldest ones with theirs."""
        if not delivery.digested:
            self._deliveries.append(delivery.let_go())
            return
        size = delivery.slim()
        if size > KEPT // 2:
            # It would cost more than half of the others theirs.
            return
        kept = self._kept
        kept.append((delivery, now, size))
        self._bytes += size
        # Many at once would give their pages back to the system, to be asked for again: 6 % of the time over STOMP.
        while self._bytes > KEPT or len(kept) > self._limit:
            self._bytes -= kept.popleft()[2]

    def taken(self, now: float) -> Sequence[Delivery]:
        """Return those of which the broker may not have learned, and keep none."""
        deliveries = [*self._deliveries, *(each for each, at, _ in self._kept if now - at <= DOUBT)]
        self._deliveries.clear()
        self._kept.clear()
        self._bytes = 0
        return deliveries

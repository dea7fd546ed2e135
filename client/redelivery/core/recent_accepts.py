"""What a consumer has accepted lately: the broker may not have learned of it when the connection is lost."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redelivery.core.delivery import Delivery

__all__ = ["RecentAccepts"]

# Bytes of bodies kept for digests that nobody may ask for. A broker reads acknowledgements in milliseconds.
KEPT = 1 << 20


class RecentAccepts:
    """Deliveries in the order of their acceptance, at most `limit`.

    On the hot path: no identity is computed, and no digest. So what can only be known again by its bytes keeps them.
    """

    __slots__ = ("_bytes", "_deliveries", "_kept")

    def __init__(self, limit: int) -> None:
        self._deliveries: deque[Delivery] = deque(maxlen=limit)
        self._kept: deque[Delivery] = deque()
        self._bytes = 0

    def add(self, delivery: Delivery) -> None:
        """Take in a delivery: without its body, or, if that may be needed, in place of the oldest ones with theirs."""
        if not delivery.digested:
            delivery.let_go()
            self._deliveries.append(delivery)
            return
        kept = self._kept
        kept.append(delivery)
        self._bytes += delivery.slim()
        while self._bytes > KEPT or len(kept) > (self._deliveries.maxlen or 0):
            self._bytes -= kept.popleft().slim()

    def taken(self) -> Sequence[Delivery]:
        """Return all, and keep none."""
        deliveries = [*self._deliveries, *self._kept]
        self._deliveries.clear()
        self._kept.clear()
        self._bytes = 0
        return deliveries

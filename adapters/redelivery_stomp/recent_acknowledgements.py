"""The messages that were acknowledged last: the broker may close the connection because of one of them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redelivery_stomp.delivery import StompDelivery

__all__ = ["RecentAcknowledgements"]

# Most messages that are kept, and most bytes of their bodies: an ERROR arrives some time after its ACK. Messages that
# were acknowledged in lists have their bodies; the engine drops the bodies of most others. The last batch is always
# kept.
RECENT, MOST_BYTES = 16_384, 16 << 20


class RecentAcknowledgements:
    """Batches of acknowledged messages, oldest first. Used with the connection's `order` held, except `all`."""

    def __init__(self) -> None:
        self._batches: deque[tuple[Sequence[StompDelivery], int]] = deque()
        self._messages = self._bytes = 0

    def add(self, deliveries: Sequence[StompDelivery]) -> None:
        """Keep a batch, in place of the oldest ones."""
        size = sum([len(each.body) for each in deliveries])
        batches = self._batches
        batches.append((deliveries, size))
        self._messages += len(deliveries)
        self._bytes += size
        while (self._messages > RECENT or self._bytes > MOST_BYTES) and len(batches) > 1:
            oldest, size = batches.popleft()
            self._messages -= len(oldest)
            self._bytes -= size

    def all(self) -> list[StompDelivery]:
        """Return all kept messages, oldest first."""
        return [one for batch, _ in list(self._batches) for one in batch]

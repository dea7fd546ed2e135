"""The messages that were acknowledged last: the broker may close the connection over one of them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redelivery_stomp.delivery import StompDelivery

__all__ = ["RecentAcknowledgements"]

# Messages that an ERROR may be about, as it arrives with a delay; and bytes of their bodies. Of what is acknowledged in
# lists the bodies are all there, of others few: the engine lets go of them. The last batch stays, however large.
RECENT, MOST_BYTES = 16_384, 16 << 20


class RecentAcknowledgements:
    """Batches of acknowledged messages, oldest first. Used with the connection's `order` held, but for `all`."""

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
        """Return all that are kept, oldest first."""
        return [one for batch, _ in list(self._batches) for one in batch]

"""Artemis counts a STOMP consumer's window in bytes, and what is parked here fills it.

Each further SUBSCRIBE to the same queue on the same connection has a window of its own (measured), so one is opened
whenever the parked messages fill the windows there are: the others go on flowing. They stay until the consumer ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redelivery_stomp.delivery import StompDelivery

__all__ = ["ByteWindow"]

OVERHEAD = 300  # bytes that Artemis counts for a small message besides header block and body (measured: 530 for 256 B)


class ByteWindow:
    """How much of one consumer's windows is taken by messages that wait for a redelivery."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._held: dict[StompDelivery, int] = {}
        self._bytes = 0
        self.subscriptions = 1

    def hold(self, delivery: StompDelivery) -> bool:
        """Note that a delivery is parked; return whether a further subscription is needed."""
        if delivery not in self._held:
            taken = len(delivery.head) + len(delivery.body) + OVERHEAD
            self._held[delivery] = taken
            self._bytes += taken
        # Half a window is left for the flow.
        if self._bytes <= (self.subscriptions - 0.5) * self._size:
            return False
        self.subscriptions += 1
        return True

    def settled(self, delivery: StompDelivery) -> None:
        """Note that a delivery has left."""
        self._bytes -= self._held.pop(delivery, 0)

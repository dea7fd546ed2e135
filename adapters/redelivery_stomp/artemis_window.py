"""The window of an Artemis consumer, which is in bytes and filled by the messages that are parked here.

Each further SUBSCRIBE to the same queue on the same connection has a window of its own (measured). One is written
whenever the parked messages fill the windows: then the broker goes on sending. They stay until the consumer ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redelivery.core.delivery import Delivery

__all__ = ["ByteWindow"]

# Bytes that Artemis counts for a small message on top of header block and body (measured: 530 for 256 B).
OVERHEAD = 300


class ByteWindow:
    """How much of one consumer's windows its parked messages take."""

    def __init__(self, size: int) -> None:
        """`size`: bytes of one window."""
        self._size = size
        self._held: dict[Delivery, int] = {}
        self._bytes = 0
        self.subscriptions = 1

    def hold(self, delivery: Delivery, size: int) -> bool:
        """Count a delivery of `size` bytes that is parked; return True if a further subscription is needed."""
        if delivery not in self._held:
            taken = size + OVERHEAD
            self._held[delivery] = taken
            self._bytes += taken
        # Half a window stays free for messages that are not parked.
        if self._bytes <= (self.subscriptions - 0.5) * self._size:
            return False
        self.subscriptions += 1
        return True

    def settled(self, delivery: Delivery) -> None:
        """Stop counting a delivery: it is settled."""
        self._bytes -= self._held.pop(delivery, 0)

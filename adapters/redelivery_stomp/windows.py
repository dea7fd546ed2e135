"""How a consumer's window grows while messages are parked: by further subscriptions of it.

Each further SUBSCRIBE to the same queue on the same connection has a window of its own (measured on all three brokers:
docs/measured-stomp.md). So a first window of `credit` messages is enough, and what is parked keeps no others out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redelivery.core.delivery import Delivery

__all__ = ["BYTES_PER_MESSAGE", "ByteWindow", "SlotWindow", "Window"]

# Bytes of an Artemis window for each message of the credit.
BYTES_PER_MESSAGE = 1024
# Bytes that Artemis counts for a small message on top of header block and body (measured: 530 for 256 B).
OVERHEAD = 300


class Window(Protocol):
    """The window of one consumer. Used with the connection's `order` held."""

    def grow(self, messages: int, /) -> None:
        """Need room for so many parked messages more; fewer, if it is negative."""

    def further(self) -> Sequence[tuple[int, int | None]]:
        """Return the subscriptions to begin: number, and messages of its window; None: as wide as the first."""
        ...

    def accepted(self, deliveries: Sequence[Delivery], /) -> bool:
        """Learn what is acknowledged; return True if further subscriptions are to be ended."""
        ...

    def ends_one(self) -> bool:
        """Take it that a further subscription ends; return False if it is needed."""
        ...


class SlotWindow:
    """A window in messages, with further subscriptions of one message each. Each ends behind its message.

    `one_by_one=False`: one for all that is asked for at once; none ends before the consumer.
    """

    def __init__(self, subscriptions: int, *, one_by_one: bool = True) -> None:
        """`subscriptions`: those that the consumer starts with."""
        self._one_by_one = one_by_one
        self._number = subscriptions
        # Messages that further subscriptions are to be begun for; below 0, those that are not needed any longer.
        self._wanted = 0

    def grow(self, messages: int) -> None:
        self._wanted += messages

    def further(self) -> Sequence[tuple[int, int | None]]:
        wanted = self._wanted
        if wanted <= 0:
            return ()
        self._wanted = 0
        windows = [1] * wanted if self._one_by_one else [wanted]
        first = self._number
        self._number += len(windows)
        return list(enumerate(windows, first))

    def accepted(self, deliveries: Sequence[Delivery]) -> bool:
        del deliveries
        return self._wanted < 0 and self._one_by_one

    def ends_one(self) -> bool:
        if self._wanted >= 0:
            return False
        self._wanted += 1
        return True


class ByteWindow:
    """A window in bytes: Artemis counts the messages' own. Further subscriptions are as wide; they stay."""

    def __init__(self, size: int) -> None:
        """`size`: bytes of one window."""
        self._size = size
        self._held: dict[Delivery, int] = {}
        self._bytes = 0
        self._messages = 0
        self._subscriptions = 1

    def hold(self, delivery: Delivery, size: int) -> None:
        """Count a delivery of `size` bytes that is parked."""
        if delivery not in self._held:
            taken = size + OVERHEAD
            self._held[delivery] = taken
            self._bytes += taken

    def grow(self, messages: int) -> None:
        self._messages += messages

    def further(self) -> Sequence[tuple[int, int | None]]:
        first = self._subscriptions
        # Not all that is parked is told one by one.
        needed = max(self._bytes, self._messages * BYTES_PER_MESSAGE)
        # Half a window stays free for messages that are not parked.
        while needed > (self._subscriptions - 0.5) * self._size:
            self._subscriptions += 1
        return [(number, None) for number in range(first, self._subscriptions)]

    def accepted(self, deliveries: Sequence[Delivery]) -> bool:
        if self._held:
            for delivery in deliveries:
                self._bytes -= self._held.pop(delivery, 0)
        return False

    def ends_one(self) -> bool:
        return False

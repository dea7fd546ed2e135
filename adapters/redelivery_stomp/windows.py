"""Windows of consumers, which grow by further subscriptions while messages are parked.

Each further SUBSCRIBE to the same queue on the same connection has a window of its own (measured on all three brokers:
docs/measured/windows.md). That is why a first window of `credit` messages is enough, and parked messages do not block
the others.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from redelivery.core.commands import Subscribe
    from redelivery.core.delivery import Delivery

__all__ = ["SlotWindow", "Window"]


class Window(Protocol):
    """The window of one consumer. Used with the connection's `order` held."""

    def grow(self, messages: int, /) -> None:
        """Add room for this number of parked messages; if it is negative, reduce it."""

    def grow_for_good(self, messages: int, /) -> None:
        """Add room for this number of messages, parked or not. It is never reduced."""

    def begun(self, number: int, /) -> None:
        """Record that the broker has confirmed a subscription of `further`."""

    def further(self) -> Sequence[tuple[int, Subscribe]]:
        """Return the subscriptions to begin: the number of each, and its command with its window."""
        ...

    def accepted(self, deliveries: Iterable[Delivery], /) -> bool:
        """Remove acknowledged deliveries from the count; return True if subscriptions are to be ended."""
        ...

    def ending(self, numbers: Iterable[int], /) -> Collection[int]:
        """Return the numbers of the subscriptions to end; 0: the first. `numbers`: those with an accepted message."""
        ...

    def ended(self, number: int, /) -> None:
        """Record that a subscription of `ending` is being ended."""


class SlotWindow:
    """A window in messages, with further subscriptions of one message each. Each ends after its message."""

    def __init__(self, command: Subscribe, subscriptions: int, *, one_by_one: bool = True) -> None:
        """Make a window.

        Args:
            command: The consumer's SUBSCRIBE.
            subscriptions: Number of subscriptions that the consumer starts with.
            one_by_one: False: one further subscription has room for all messages that are needed, and none ends before
                the consumer.
        """
        self._command = command
        self._one_by_one = one_by_one
        self._number = subscriptions
        # Number of messages that need further subscriptions; below 0: number of subscriptions that may end.
        self._wanted = 0

    def grow(self, messages: int) -> None:
        self._wanted += messages

    def grow_for_good(self, messages: int) -> None:
        self.grow(messages)

    def begun(self, number: int) -> None:
        del number

    def further(self) -> Sequence[tuple[int, Subscribe]]:
        command, first, wanted = self._command, self._number, self._wanted
        if wanted <= 0:
            return ()
        self._wanted = 0
        windows = [1] * wanted if self._one_by_one else [wanted]
        self._number += len(windows)
        return [
            (number, replace(command, window=window, room=0)) for number, window in enumerate(windows, first)
        ]

    def accepted(self, deliveries: Iterable[Delivery]) -> bool:
        del deliveries
        return self._one_by_one and self._wanted < 0

    def ending(self, numbers: Iterable[int]) -> Collection[int]:
        return [number for number in numbers if number][: max(0, -self._wanted)]

    def ended(self, number: int) -> None:
        del number
        self._wanted += 1

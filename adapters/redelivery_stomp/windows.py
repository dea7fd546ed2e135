"""How a consumer's window grows while messages are parked: by further subscriptions of it.

Each further SUBSCRIBE to the same queue on the same connection has a window of its own (measured on all three brokers:
docs/measured/stomp.md). So a first window of `credit` messages is enough, and what is parked keeps no others out.
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
        """Need room for so many parked messages more; fewer, if it is negative."""

    def grow_for_good(self, messages: int, /) -> None:
        """Need room for so many messages more, parked or not, which is never given back."""

    def begun(self, number: int, /) -> None:
        """Note that the broker has confirmed a subscription of `further`."""

    def further(self) -> Sequence[tuple[int, Subscribe]]:
        """Return the subscriptions to begin: their numbers, and commands with the window of each."""
        ...

    def accepted(self, deliveries: Iterable[Delivery], /) -> bool:
        """Learn what is acknowledged; return True if subscriptions are to be ended."""
        ...

    def ending(self, numbers: Iterable[int], /) -> Collection[int]:
        """Return the numbers of the subscriptions to end (0: the first). `numbers`: those with a message accepted."""
        ...

    def ended(self, number: int, /) -> None:
        """Learn that a subscription of `ending` is being ended."""


class SlotWindow:
    """A window in messages, with further subscriptions of one message each. Each ends behind its message."""

    def __init__(self, command: Subscribe, subscriptions: int, *, one_by_one: bool = True) -> None:
        """`subscriptions`: those that the consumer starts with; `one_by_one=False`: one for all that is needed at once,
        and none ends before the consumer.
        """
        self._command = command
        self._one_by_one = one_by_one
        self._number = subscriptions
        # Messages that further subscriptions are to be begun for; below 0, those that are not needed any longer.
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

"""How a consumer's window grows while messages are parked: by further subscriptions of it.

Each further SUBSCRIBE to the same queue on the same connection has a window of its own (measured on all three brokers:
docs/measured-stomp.md). So a first window of `credit` messages is enough, and what is parked keeps no others out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from redelivery.core.commands import Subscribe
    from redelivery.core.delivery import Delivery

__all__ = ["BYTES_PER_MESSAGE", "ByteWindow", "SlotWindow", "Window"]

# Bytes of an Artemis window for each message of the credit.
BYTES_PER_MESSAGE = 1024
# Bytes that Artemis counts for a small message on top of header block and body (measured: 530 for 256 B).
OVERHEAD = 300


class Window(Protocol):
    """The window of one consumer. Used with the connection's `order` held."""

    group: bytes
    """Begin of the header line that a message has which must not come by a further subscription of one message."""

    def grow(self, messages: int, /) -> None:
        """Need room for so many parked messages more; fewer, if it is negative."""

    def further(self) -> Sequence[tuple[int, Subscribe]]:
        """Return the subscriptions to begin: their numbers, and commands with the window of each."""
        ...

    def accepted(self, deliveries: Iterable[Delivery], /) -> bool:
        """Learn what is acknowledged; return True if subscriptions are to be ended."""
        ...

    def ends(self, number: int, /) -> bool:
        """Take it that a subscription ends (0: the first); return False if it is needed."""
        ...


class SlotWindow:
    """A window in messages, with further subscriptions of one message each. Each ends behind its message.

    Artemis binds a message group to the subscription that got its first message. The group's next one waits for room
    there, and all that is behind it waits with it, for every consumer of the queue (measured: docs/measured-stomp.md).
    So where groups come, one wide subscription takes the place of the others.
    """

    def __init__(
        self, command: Subscribe, subscriptions: int, *, one_by_one: bool = True, group: bytes = b""
    ) -> None:
        """`subscriptions`: those that the consumer starts with; `one_by_one=False`: one for all that is needed at once,
        and none ends before the consumer; `group`: see `Window`.
        """
        self.group = group
        self._command = command
        self._one_by_one = one_by_one
        self._number = subscriptions
        # Messages that further subscriptions are to be begun for; below 0, those that are not needed any longer.
        self._wanted = 0
        # Number of the one that takes groups.
        self._wide: int | None = None
        self._widens = False

    def grow(self, messages: int) -> None:
        self._wanted += messages

    def widen(self) -> bool:
        """Replace all by one that takes groups; return False if that has been done."""
        if self._wide is not None:
            return False
        self._wide, self._widens = self._number, True
        self._number += 1
        return True

    def further(self) -> Sequence[tuple[int, Subscribe]]:
        command, first, wanted = self._command, self._number, self._wanted
        if self._wide is not None:
            # It has room for all that may be parked.
            begins, self._widens = self._widens, False
            return [(self._wide, replace(command, ordering="per_group"))] if begins else ()
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
        return self._one_by_one and (self._wanted < 0 or self._wide is not None)

    def ends(self, number: int) -> bool:
        if self._wide is not None:
            return number != self._wide
        if not number or self._wanted >= 0:
            return False
        self._wanted += 1
        return True


class ByteWindow:
    """A window in bytes: Artemis counts the messages' own. Further subscriptions are as wide; they stay."""

    group = b""

    def __init__(self, command: Subscribe, size: int) -> None:
        """`size`: bytes of one subscription."""
        self._command = command
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

    def further(self) -> Sequence[tuple[int, Subscribe]]:
        first = self._subscriptions
        # Not all that is parked is told one by one.
        needed = max(self._bytes, self._messages * BYTES_PER_MESSAGE)
        # Half a window stays free for messages that are not parked.
        while needed > (self._subscriptions - 0.5) * self._size:
            self._subscriptions += 1
        return [(number, self._command) for number in range(first, self._subscriptions)]

    def accepted(self, deliveries: Iterable[Delivery]) -> bool:
        if self._held:
            for delivery in deliveries:
                self._bytes -= self._held.pop(delivery, 0)
        return False

    def ends(self, number: int) -> bool:
        del number
        return False

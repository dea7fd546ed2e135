"""The window of a consumer with `redelivery.credit=auto` on Classic and Artemis, which can end its subscriptions.

The window is small at the begin. When the engine needs more, one wide subscription replaces the narrow one, which ends
when none of its messages is unsettled. Message groups and exclusive consumers, which the broker binds to one
subscription, move to the wide one. On Artemis each subscription may lose a message when the connection is cut
(docs/measured/artemis-stomp-cuts.md, "A cut connection loses its first message").
For that reason there are two only while the first has unsettled messages.

On Artemis the window is in bytes. If messages are larger than expected, or large ones are parked, no bytes may be left
for the others: a further subscription is begun then.
"""

from __future__ import annotations

from math import ceil, inf
from typing import TYPE_CHECKING

from redelivery_stomp.byte_windows import CREDIBLE, MARGIN, MOST_BYTES, UNIT, CountedWindow, size_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from redelivery.core.commands import Subscribe
    from redelivery.core.delivery import Delivery
    from redelivery_stomp.delivery import StompDelivery

__all__ = ["GrowingWindow", "MessageWindow"]


class GrowingWindow(CountedWindow):
    """A window in bytes, of Artemis."""

    # While all messages are counted, `came` checks the window.
    limit = inf

    def __init__(self, command: Subscribe, size: int, usual: int, *, group: bytes = b"") -> None:
        """See `ByteWindow`."""
        super().__init__(command, size, usual, group=group)
        # Number of messages that the engine needs, and that the widest subscription has room for.
        self._asked = self._room = command.window
        # True after the broker confirmed the widest subscription: the others may not end before.
        self._stands = False
        # Subscriptions whose messages are not counted. They do not end before the consumer.
        self._kept: set[int] = set()
        # True while the reading thread may have a message of a subscription that has ended.
        self._checks = False

    @property
    def watches(self) -> bool:
        return self._checks or self._counted or len(self.parts) > 1 + len(self._kept)

    @property
    def _counted(self) -> bool:
        """True while the messages of the widest subscription are counted, because it may have to end."""
        return self.wide is None or self._room < self.command.most

    def grow_for_good(self, messages: int) -> None:
        self._asked += messages

    def came(self, delivery: StompDelivery, number: int) -> None:
        if number in self._kept or (number == self.wide and not self._counted):
            return
        super().came(delivery, number)

    def sampled(self, delivery: StompDelivery) -> None:
        if not self._counted:
            self._learn(size_of(delivery))

    def parks(self, delivery: StompDelivery, number: int) -> None:
        # A parked message may stay long: it is counted even if others are not.
        self._take(delivery, number, size_of(delivery))
        self._limit()

    def accepted(self, deliveries: Iterable[Delivery]) -> bool:
        ending = super().accepted(deliveries)
        if not self._counted:
            self._limit()
        return ending

    def checked(self) -> bool:
        if not self._leaving():
            self._checks = False
        return not self._checks

    def further(self) -> Sequence[tuple[int, Subscribe]]:
        if self._asked > self._room:
            return [self._begin_wide()]
        if self.wide is None:
            return super().further()
        return self._lacking_of_counted() if self._counted else self._lacking_of_wide()

    def _lacking_of_counted(self) -> Sequence[tuple[int, Subscribe]]:
        """Return a wider subscription, if fewer messages than the engine needs have used up all bytes."""
        parts = self.parts.values()
        messages = sum(part.messages for part in parts)
        if messages >= self._asked or any(part.left for part in parts):
            return ()
        mean = sum(part.held for part in parts) / messages
        self.usual = max(self.usual, min(mean, CREDIBLE * self.usual))
        return [self._begin_wide()]

    def _lacking_of_wide(self) -> Sequence[tuple[int, Subscribe]]:
        """Return a subscription for the bytes that the widest one lacks, because messages are larger or parked.

        The widest one stays.
        """
        room = self._left()
        needed = min(self.command.most * self.usual, MOST_BYTES)
        if room * MARGIN >= needed:
            return ()
        assert self.wide is not None, "else all are counted"
        # At least as large as the widest one: that keeps their number small.
        begun = self._begin(ceil(max(needed - room, self.parts[self.wide].size) / self._unit))
        self._kept.add(begun[0])
        self._limit()
        return [begun]

    def _left(self) -> float:
        """Return the bytes that parked messages leave of the subscriptions that stay."""
        return sum(
            part.left for number, part in self.parts.items() if number == self.wide or number in self._kept
        )

    def _limit(self) -> None:
        """Set the usual size above which a read is checked: the window has no room for the credit then."""
        room = self._left() * MARGIN
        self.limit = inf if self._counted or room >= MOST_BYTES else room / self.command.most

    def widen(self) -> tuple[int, Subscribe] | None:
        if self.wide is not None:
            return None
        # Parked messages of groups use a part of this window, which no other subscription can replace.
        return self._begin_wide(self.command.window + self.command.room)

    def begun(self, number: int) -> None:
        self._stands = self._stands or number == self.wide

    def ending(self, numbers: Iterable[int]) -> Collection[int]:
        if self.wide is None:
            return super().ending(numbers)
        if not self._stands:
            return ()
        return [number for number in self._leaving() if not self.parts[number].messages]

    def ended(self, number: int) -> None:
        super().ended(number)
        self._checks = True

    def _leaving(self) -> Collection[int]:
        return [number for number in self.parts if number != self.wide and number not in self._kept]

    def _begin_wide(self, least: int = 0) -> tuple[int, Subscribe]:
        """Return a subscription with room for all messages that the engine needs, and for `least` at least."""
        messages = max(self._asked, least)
        if self.wide is not None and not self._counted:
            # The widest one stays, as its messages are not counted. The new one adds the lacking messages.
            self._kept.add(self.wide)
            wide = self._begin(self._units(messages - self._room))
        else:
            wide = self._begin(self._units(messages))
        self._room = messages
        self.wide, self._stands = wide[0], False
        self._limit()
        return wide

    def _units(self, messages: int) -> int:
        """Return the size of a subscription for this number of messages, in units of `_begin`."""
        return max(messages, ceil(min(messages * self.usual, MOST_BYTES) / UNIT))


class MessageWindow(GrowingWindow):
    """A window in messages, of Classic."""

    _unit = 1

    def sampled(self, delivery: StompDelivery) -> None:
        del delivery  # Each message counts as one.

    def parks(self, delivery: StompDelivery, number: int) -> None:
        # The engine asks for credit for parked messages.
        del delivery, number

    def _measure(self, delivery: StompDelivery) -> int:
        del delivery
        return 1

    def _units(self, messages: int) -> int:
        return messages

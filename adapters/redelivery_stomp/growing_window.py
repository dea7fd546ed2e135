"""The window of a consumer with `redelivery.credit=auto`, where it can end its subscriptions: Classic and Artemis.

It begins small. When more is asked for, one wide subscription takes the place of the narrow one, which ends when
nothing of it is unsettled. Message groups and exclusive consumers, which the broker binds to one subscription, move
with it. On Artemis each subscription that stands when a link is cut may lose a message (docs/measured/stomp.md, n):
there are two only for as long as the first has messages.

On Artemis it is in bytes. Messages that prove larger than it was made for, or large ones that are parked, would leave
nothing of it for the others: then a further subscription is begun.
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

    # While all are counted, `came` is what looks.
    limit = inf

    def __init__(self, command: Subscribe, size: int, usual: int, *, group: bytes = b"") -> None:
        """See `ByteWindow`."""
        super().__init__(command, size, usual, group=group)
        # Messages that are asked for, and those that the widest subscription has room for.
        self._asked = self._room = command.window
        # True when the broker has confirmed the widest one: only then may the others end.
        self._stands = False
        # Those that are not counted, so that it is not known when they could end.
        self._kept: set[int] = set()
        # True while the reading thread may have a message of a subscription that has ended.
        self._checks = False

    @property
    def watches(self) -> bool:
        return self._checks or self._counted or len(self.parts) > 1 + len(self._kept)

    @property
    def _counted(self) -> bool:
        """True while the widest subscription may have to end: then its messages are counted."""
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
        # Of those that are not counted, these are known, as they may stay for long.
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
        """Return a wider one in its place, if its bytes are used up by fewer messages than are asked for."""
        parts = self.parts.values()
        messages = sum(part.messages for part in parts)
        if messages >= self._asked or any(part.left for part in parts):
            return ()
        mean = sum(part.held for part in parts) / messages
        self.usual = max(self.usual, min(mean, CREDIBLE * self.usual))
        return [self._begin_wide()]

    def _lacking_of_wide(self) -> Sequence[tuple[int, Subscribe]]:
        """Return one for what the widest lacks, which stays, for messages are larger than they were, or are parked."""
        room = self._left()
        needed = min(self.command.most * self.usual, MOST_BYTES)
        if room * MARGIN >= needed:
            return ()
        assert self.wide is not None, "else all are counted"
        # Of the first ones' size at least, so that there are few.
        begun = self._begin(ceil(max(needed - room, self.parts[self.wide].size) / self._unit))
        self._kept.add(begun[0])
        self._limit()
        return [begun]

    def _left(self) -> float:
        """Return what is left of those that stay, but for what is not parked."""
        return sum(
            part.left for number, part in self.parts.items() if number == self.wide or number in self._kept
        )

    def _limit(self) -> None:
        """Have a read looked at once its messages are larger than there is room for."""
        room = self._left() * MARGIN
        self.limit = inf if self._counted or room >= MOST_BYTES else room / self.command.most

    def widen(self) -> tuple[int, Subscribe] | None:
        if self.wide is not None:
            return None
        # Groups that are parked keep room there, which nothing else can take.
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
        """Return a subscription that has room for all that is asked for, and for so many at least."""
        messages = max(self._asked, least)
        if self.wide is not None and not self._counted:
            # What is not counted stays, and the new one is for what it lacks.
            self._kept.add(self.wide)
            wide = self._begin(self._units(messages - self._room))
        else:
            wide = self._begin(self._units(messages))
        self._room = messages
        self.wide, self._stands = wide[0], False
        self._limit()
        return wide

    def _units(self, messages: int) -> int:
        """Return the size of a subscription for so many messages, in units of `_begin`."""
        return max(messages, ceil(min(messages * self.usual, MOST_BYTES) / UNIT))


class MessageWindow(GrowingWindow):
    """A window in messages, of Classic."""

    _unit = 1

    def sampled(self, delivery: StompDelivery) -> None:
        del delivery  # All are of one size.

    def parks(self, delivery: StompDelivery, number: int) -> None:
        # The engine asks for room for them.
        del delivery, number

    def _measure(self, delivery: StompDelivery) -> int:
        del delivery
        return 1

    def _units(self, messages: int) -> int:
        return messages

"""A consumer's window in bytes: how many messages that is, which depends on their size, and what it lacks.

A message is sent while any of a subscription's window is left, however large the message is. When a link is cut,
Artemis may lose the first message that each of its subscriptions holds (docs/measured/stomp.md, n). So there are as
few of them as can be: one of a guessed size, and further ones when what comes proves it too small, each for all that
is lacking.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from redelivery.core.commands import Subscribe
    from redelivery.core.delivery import Delivery
    from redelivery_stomp.delivery import StompDelivery

__all__ = ["CREDIBLE", "MARGIN", "MOST_BYTES", "UNIT", "ByteWindow", "CountedWindow", "Part", "size_of"]

# Bytes: a window of so many messages is subscribed as so many of these (`StompArtemis.subscribe_headers`).
UNIT = 1024
# Bytes of a MESSAGE frame besides its header block and body. Artemis counts the frame.
OVERHEAD = 11
# Further subscriptions that are as wide as what is lacking; those behind them double what there is.
FEW = 4
# One message moves the usual size by an eighth, and counts as at most four usual ones: a huge one is not what all that
# follow will be.
WEIGHT = 8
CREDIBLE = 4
# Bytes that a message may well have. The first ones are believed so far, as nothing is known yet.
LIKELY = 16384
# When parked messages have used up what there was, so many times their number is added, or the credit's. So there are
# few subscriptions, and in between the consumer may be given more messages than its credit says.
AHEAD = 4.5
# Bytes: a large credit of large messages is not given more than that. A thousand of 1 MB would be too much for anybody.
MOST_BYTES = 16 << 20
# How far what is needed of a large window may be above what there is, or below it, before something is done.
MARGIN = 1.5
# Kilobytes: the widest window of one subscription. Artemis reads an int of bytes.
WIDEST = 1 << 20


class Part:
    """One subscription of a window."""

    __slots__ = ("held", "messages", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        # Bytes that are taken of it, and by how many messages, as far as that is counted.
        self.held = 0
        self.messages = 0

    @property
    def left(self) -> int:
        """Bytes that are left: none, if the last message was larger than what was left then."""
        return max(0, self.size - self.held)


class ByteWindow(ABC):
    """What both kinds of windows have in common. Used with the connection's `order` held."""

    group = b""
    """Begin of the header line of a message that must not come by a narrow subscription."""
    _counts = False
    _unit = UNIT
    limit: float = 0.0
    """While `usual` is above it, `further` may have something to begin."""

    def __init__(self, command: Subscribe, size: int, usual: int) -> None:
        """`size`: bytes of the first subscription; `usual`: bytes of a message, as a guess."""
        self.command = command
        self.credit = command.window
        self.usual = float(usual)
        self.parts = {0: Part(size)}
        self._number = 1
        # Messages that are parked, by what the engine asks room for.
        self.parked = 0
        self.known: dict[Delivery, tuple[Part, int]] = {}

    def grow(self, messages: int) -> None:
        self.parked += messages

    def grow_for_good(self, messages: int) -> None:
        # Of a consumer that was not begun to grow.
        self.grow(messages)

    def begun(self, number: int) -> None:
        del number

    def checked(self) -> bool:
        """Note that no message of an ended subscription is among what the reading thread has."""
        return True

    @property
    def watches(self) -> bool:
        """True if `came` is to be told of every message, besides what `sampled` is."""
        # Each further one ends when nothing of it is unsettled, perhaps between a read and this look at it.
        return self._counts or self._number > 1

    def sampled(self, delivery: StompDelivery) -> None:
        """Learn what one message of a read measures. Called without the lock, by the reading thread."""
        # What several give back need not come back in order: where one is promised, only what is parked makes room.
        if self.command.ordering == "non_blocking":
            self._learn(size_of(delivery))

    @abstractmethod
    def came(self, delivery: StompDelivery, number: int) -> None:
        """Learn of a message that came by a subscription."""

    @abstractmethod
    def parks(self, delivery: StompDelivery, number: int) -> None:
        """Learn that a delivery which came by a subscription is parked."""

    def accepted(self, deliveries: Iterable[Delivery]) -> bool:
        known = self.known
        if known:
            for delivery in deliveries:
                if delivery in known:
                    part, size = known.pop(delivery)
                    part.held -= size
                    part.messages -= 1
        return len(self.parts) > 1

    def further(self) -> Sequence[tuple[int, Subscribe]]:
        lacking = self._lacking()
        begun = len(self.parts) - 1
        if lacking <= 0:
            return ()
        # From the fifth on each has as much as all before it, so that their number grows with the logarithm only. There
        # is no last one: with large messages parked a consumer would stand still in front of all the others.
        if begun >= FEW:
            lacking = max(lacking, sum(part.size for part in self.parts.values()))
        return [self._begin(min(WIDEST, ceil(lacking / UNIT)))]

    def ending(self, numbers: Iterable[int]) -> Collection[int]:
        del numbers
        idle = [number for number, part in self.parts.items() if number and not part.messages]
        # The widest first.
        idle.sort(key=lambda number: -self.parts[number].size)
        ends: list[int] = []
        for number in idle:
            if self._suffices([part for other, part in self.parts.items() if other not in (number, *ends)]):
                ends.append(number)
        return ends

    def ended(self, number: int) -> None:
        del self.parts[number]

    def _begin(self, units: int) -> tuple[int, Subscribe]:
        """Return a subscription to begin, of so many `UNIT`."""
        number = self._number
        self._number += 1
        self.parts[number] = Part(units * self._unit)
        # Of the kind that has all of its room at once.
        return number, replace(self.command, window=units, room=0, ordering="per_group")

    def _take(self, delivery: StompDelivery, number: int, size: int) -> None:
        """Count a delivery against its subscription, with so many bytes, until it is accepted."""
        if delivery not in self.known and (part := self.parts.get(number)) is not None:
            self.known[delivery] = part, size
            part.held += size
            part.messages += 1

    def _learn(self, size: int) -> None:
        """Move the usual size towards this one."""
        self.usual += (min(size, CREDIBLE * self.usual) - self.usual) / WEIGHT

    @abstractmethod
    def _lacking(self) -> float:
        """Return the bytes that are to be added; 0, if there are enough."""

    @abstractmethod
    def _suffices(self, parts: Collection[Part]) -> bool:
        """True if these would be enough."""


class CountedWindow(ByteWindow):
    """The window of a small credit: every message is counted, so that as many as the credit says are in work.

    Artemis binds a message group to the subscription that got its first message. The group's next one waits for room
    there, and all that is behind it waits with it, for every consumer of the queue (measured: docs/measured/stomp.md).
    So where groups come, one wide subscription takes the place of the others.
    """

    _counts = True

    def __init__(self, command: Subscribe, size: int, usual: int, *, group: bytes = b"") -> None:
        """See `ByteWindow`."""
        super().__init__(command, size, usual)
        self.group = group
        self.wide: int | None = None
        self._seen = 0

    def _measure(self, delivery: StompDelivery) -> int:
        return size_of(delivery)

    def came(self, delivery: StompDelivery, number: int) -> None:
        size = self._measure(delivery)
        self._seen += 1
        self._learn(size)
        self._take(delivery, number, size)

    def sampled(self, delivery: StompDelivery) -> None:
        del delivery  # All are counted.

    def parks(self, delivery: StompDelivery, number: int) -> None:
        del delivery, number

    def came_alone(self, number: int) -> bool:
        """True if a subscription has brought nothing that is unsettled."""
        part = self.parts.get(number)
        return number != self.wide and part is not None and not part.messages

    def widen(self) -> tuple[int, Subscribe] | None:
        """Return the subscription that takes groups, if that is to be begun."""
        if self.wide is not None:
            return None
        command = self.command
        number, begun = self._begin(command.window + command.room)
        self.wide = number
        return number, begun

    def further(self) -> Sequence[tuple[int, Subscribe]]:
        # It has room for all that may be parked.
        return super().further() if self.wide is None else ()

    def ending(self, numbers: Iterable[int]) -> Collection[int]:
        if self.wide is None:
            return super().ending(numbers)
        return [number for number, part in self.parts.items() if number != self.wide and not part.messages]

    def _in_work(self) -> int:
        # The engine asks for room in steps: it may still say that something is parked.
        return max(0, sum(part.messages for part in self.parts.values()) - self.parked)

    def _lacking(self) -> float:
        parts, credit, in_work = self.parts.values(), self.credit, self._in_work()
        # While any of it is left, the broker has nothing more.
        if in_work >= credit or any(part.left for part in parts):
            return 0
        messages = sum(part.messages for part in parts)
        mean = sum(part.held for part in parts) / messages
        lacking: float = credit - in_work
        if self.parked > 0:
            # Never more than may be parked besides.
            most = credit + max(self.command.room, self.parked) - messages
            lacking = max(lacking, min(AHEAD * max(credit, self.parked), most))
        credible = CREDIBLE * self.usual if self._seen > WEIGHT else LIKELY
        return lacking * max(self.usual, min(mean, credible))

    def _suffices(self, parts: Collection[Part]) -> bool:
        room = sum(ceil(part.left / self.usual) for part in parts)
        return room + self._in_work() >= self.credit


def size_of(delivery: StompDelivery) -> int:
    """Return the bytes of a MESSAGE frame."""
    return len(delivery.head) + len(delivery.body) + OVERHEAD

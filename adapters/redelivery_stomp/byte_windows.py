"""Windows of a consumer in bytes, on Classic and Artemis: sampled for a large credit, or growing with `auto`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from math import ceil, inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from redelivery.core.commands import Subscribe
    from redelivery.core.delivery import Delivery
    from redelivery_stomp.delivery import StompDelivery

__all__ = ["UNIT", "ByteWindow", "CountedWindow", "GrowingWindow", "MessageWindow", "SampledWindow"]


# ---- Byte windows ----------------------------------------------------------------------------------------
# A consumer's window in bytes on Artemis: how many messages it holds, and how many bytes it lacks.
#
# Artemis sends a message while any byte of a subscription's window is left, however large the message is. When a
# connection is cut, Artemis may lose the first message that each of its subscriptions holds. See
# docs/measured/artemis-stomp-cuts.md, "A cut connection loses its first message". That is why a consumer has as few
# subscriptions as possible: one of a guessed size, and further ones when the messages prove it too small. Each
# further one has all the bytes that are lacking.

# Bytes for each message of a window, as it is subscribed (`StompArtemis.subscribe_headers`).
UNIT = 1024
# Bytes of a MESSAGE frame beyond its header block and body. Artemis counts the frame.
OVERHEAD = 11
# Number of further subscriptions that are as wide as the lacking bytes. Each later one doubles the whole window.
FEW = 4
# One message moves the usual size by an eighth, and counts as at most four usual ones: the messages after a huge one
# need not be huge.
WEIGHT = 8
CREDIBLE = 4
# Bytes. The first messages count with at most this size, while the usual size is not known yet.
LIKELY = 16384
# When parked messages have used up the window, this many times their number is added, or this many times the credit.
# There are few subscriptions then, and until the next one the consumer may get more messages than its credit.
AHEAD = 4.5
# Bytes: the largest window for a large credit. A thousand messages of 1 MB would fill the memory of most processes.
MOST_BYTES = 16 << 20
# Factor by which the needed bytes of a large window may be above or below its size before it is changed.
MARGIN = 1.5
# Kilobytes: the widest window of one subscription. Artemis reads an int of bytes.
WIDEST = 1 << 20


class Part:
    """One subscription of a window."""

    __slots__ = ("held", "messages", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        # Bytes used, and the number of messages that use them, as far as they are counted.
        self.held = 0
        self.messages = 0

    @property
    def left(self) -> int:
        """Bytes that are left; 0 if the last message was larger than the bytes that were left."""
        return max(0, self.size - self.held)


class ByteWindow(ABC):
    """Base of both kinds of byte windows. Used with the connection's `order` held."""

    group = b""
    """First bytes of the header line of a message that must not arrive on a narrow subscription."""
    _counts = False
    _unit = UNIT
    limit: float = 0.0
    """Bytes. While `usual` is above it, `further` may return a subscription to begin."""

    def __init__(self, command: Subscribe, size: int, usual: int) -> None:
        """`size`: bytes of the first subscription; `usual`: bytes of a message, as a guess."""
        self.command = command
        self.credit = command.window
        self.usual = float(usual)
        self.parts = {0: Part(size)}
        self._number = 1
        # Number of parked messages, as far as the engine asked for credit for them.
        self.parked = 0
        self.known: dict[Delivery, tuple[Part, int]] = {}

    def grow(self, messages: int) -> None:
        self.parked += messages

    def grow_for_good(self, messages: int) -> None:
        # For a consumer that was not begun with a window that grows.
        self.grow(messages)

    def begun(self, number: int) -> None:
        del number

    def checked(self) -> bool:
        """Record that the reading thread has no more messages of an ended subscription."""
        return True

    @property
    def watches(self) -> bool:
        """True if `came` must be called for every message, in addition to `sampled`."""
        # A further subscription ends when none of its messages is unsettled. That may be between a read and this check.
        return self._counts or self._number > 1

    def sampled(self, delivery: StompDelivery) -> None:
        """Adjust the usual size to one message of a read. Called without the lock, by the reading thread."""
        # The broker need not redeliver in order the messages that several subscriptions release. If an order is
        # promised, only parked messages add to the window.
        if self.command.ordering == "non_blocking":
            self._learn(size_of(delivery))

    @abstractmethod
    def came(self, delivery: StompDelivery, number: int) -> None:
        """Count a message that arrived on a subscription."""

    @abstractmethod
    def parks(self, delivery: StompDelivery, number: int) -> None:
        """Count a delivery that arrived on a subscription as parked."""

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
        # From the fifth on, each subscription is as wide as all before it: their number grows with the logarithm of the
        # bytes. The number has no limit: a consumer with large parked messages would get none of the others.
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
        """Return a subscription to begin, with a window of `units` times `UNIT`."""
        number = self._number
        self._number += 1
        self.parts[number] = Part(units * self._unit)
        # The kind of subscription that has its whole window from the begin.
        return number, replace(self.command, window=units, room=0, ordering="per_group")

    def _take(self, delivery: StompDelivery, number: int, size: int) -> None:
        """Count `size` bytes of a delivery against its subscription, until it is accepted."""
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
        """True if these parts are enough for the credit."""


class CountedWindow(ByteWindow):
    """The window of a small credit: every message is counted, so that as many as the credit are being handled.

    Artemis binds a message group to the subscription that got its first message. The group's next message waits until
    that subscription's window has room. All messages behind it wait, too, for every consumer of the queue (measured:
    docs/measured/artemis-stomp-windows.md). That is why one wide subscription replaces the others when a message has a
    group.
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
        """True if no message of a narrow subscription is unsettled."""
        part = self.parts.get(number)
        return number != self.wide and part is not None and not part.messages

    def widen(self) -> tuple[int, Subscribe] | None:
        """Return the wide subscription for message groups; None if it is begun already."""
        if self.wide is not None:
            return None
        command = self.command
        number, begun = self._begin(command.window + command.room)
        self.wide = number
        return number, begun

    def further(self) -> Sequence[tuple[int, Subscribe]]:
        # The wide subscription has room for all messages that may be parked.
        return super().further() if self.wide is None else ()

    def ending(self, numbers: Iterable[int]) -> Collection[int]:
        if self.wide is None:
            return super().ending(numbers)
        return [number for number, part in self.parts.items() if number != self.wide and not part.messages]

    def _in_work(self) -> int:
        # The engine changes the number of parked messages in steps: it may still count some that are not parked now.
        return max(0, sum(part.messages for part in self.parts.values()) - self.parked)

    def _lacking(self) -> float:
        parts, credit, in_work = self.parts.values(), self.credit, self._in_work()
        # While any byte of a window is left, the broker has no further message.
        if in_work >= credit or any(part.left for part in parts):
            return 0
        messages = sum(part.messages for part in parts)
        mean = sum(part.held for part in parts) / messages
        lacking: float = credit - in_work
        if self.parked > 0:
            # Never more than the messages that may still be parked.
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


# ---- Sampled window --------------------------------------------------------------------------------------
# A consumer's window in bytes, for a large credit: measures one message of each read, and counts the parked ones.


class SampledWindow(ByteWindow):
    """The window of a large credit, in which one message counts little. Only the parked messages are counted."""

    def __init__(self, command: Subscribe, size: int, usual: int) -> None:
        """See `ByteWindow`."""
        super().__init__(command, size, usual)
        # Number of messages that were reported as parked.
        self._told = 0
        self._limit()

    def grow(self, messages: int) -> None:
        super().grow(messages)
        self._limit()

    def came(self, delivery: StompDelivery, number: int) -> None:
        self._take(delivery, number, 0)

    def parks(self, delivery: StompDelivery, number: int) -> None:
        self._take(delivery, number, 0)
        known = self.known.get(delivery)
        if known is not None and not known[1]:
            size = size_of(delivery)
            self.known[delivery] = known[0], size
            known[0].held += size
            self._told += 1
            self._limit()

    def accepted(self, deliveries: Iterable[Delivery]) -> bool:
        if not self._told:
            return super().accepted(deliveries)
        self._told -= sum(bool(self.known[one][1]) for one in deliveries if one in self.known)
        ending = super().accepted(deliveries)
        self._limit()
        return ending

    def further(self) -> Sequence[tuple[int, Subscribe]]:
        begun = super().further()
        self._limit()
        return begun

    def ended(self, number: int) -> None:
        super().ended(number)
        self._limit()

    def _limit(self) -> None:
        room = self._room(self.parts.values()) * MARGIN
        self.limit = room / self.credit if room < MOST_BYTES else inf

    def _needed(self) -> float:
        return min(self.credit * self.usual, MOST_BYTES)

    def _room(self, parts: Collection[Part]) -> float:
        # Not each parked message is reported.
        untold = max(0, self.parked - self._told) * self.usual
        return sum(part.left for part in parts) - untold

    def _lacking(self) -> float:
        parts, needed = self.parts.values(), self._needed()
        room = self._room(parts)
        if room * MARGIN >= needed:
            return 0
        return max(needed - room, self.parts[0].size)

    def _suffices(self, parts: Collection[Part]) -> bool:
        return self._room(parts) >= self._needed() * MARGIN


# ---- Growing window --------------------------------------------------------------------------------------
# The window of a consumer with `redelivery.credit=auto` on Classic and Artemis, which can end its subscriptions.
#
# The window is small at the begin. When the engine needs more, one wide subscription replaces the narrow one, which
# ends when none of its messages is unsettled. Message groups and exclusive consumers, which the broker binds to one
# subscription, move to the wide one. On Artemis each subscription may lose a message when the connection is cut
# (docs/measured/artemis-stomp-cuts.md, "A cut connection loses its first message"). For that reason there are two
# only while the first has unsettled messages.
#
# On Artemis the window is in bytes. If messages are larger than expected, or large ones are parked, no bytes may be
# left for the others: a further subscription is begun then.


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

"""The subscriptions of one connection: finds the one that a MESSAGE belongs to.

The broker's id of a subscription is the connection's token and the subscription's name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery_stomp.delivery import StompDelivery, Subscription

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = ["Subscriptions"]


class Subscriptions(dict[str, Subscription]):
    """The subscriptions of one connection, by name."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._prefix = f"{token}-"
        self._line = f"\nsubscription:{token}-".encode()
        # Set while the connection has had only one subscription: all messages are of this one then.
        self.only: Subscription | None = None
        # If there are several: the header line of the one with the last message, and its `Subscription`, which it
        # shares with the consumer's others.
        self._usual: tuple[bytes, Subscription] | None = None
        # True after a subscription has ended: its messages may still arrive.
        self._ended = False
        # Subscriptions of ended consumers whose messages may still arrive.
        self._leaving: dict[str, Subscription] = {}

    def wire_id(self, name: str) -> str:
        """Return the id that a subscription has at the broker."""
        return self._prefix + name

    def begin(self, name: str, subscription: Subscription) -> None:
        """Add a subscription, before its first message can arrive."""
        self[name] = subscription
        self._find_only()

    def _find_only(self) -> None:
        sources = set(self.values())
        alone = len(sources) == 1 and not self._ended
        self.only = sources.pop() if alone else None

    def end_further(self, name: str) -> None:
        """End one subscription of a running consumer. The broker redelivers its late messages on another.

        From now on the `subscription` header of each message is read. Artemis sends some messages after the RECEIPT of
        the UNSUBSCRIBE, and closes the connection if one of them is acknowledged (docs/measured/windows.md, b).
        """
        del self[name]
        self.only, self._usual, self._ended = None, None, True

    def of_consumer(self, consumer: int) -> Subscription | None:
        """Return the `Subscription` that a consumer's subscriptions share, or None. The first may have ended."""
        first = self.get(str(consumer))
        return first or next((each for each in self.values() if each.consumer == consumer), None)

    def first(self, fits: Callable[[str], bool]) -> Subscription | None:
        """Return the first subscription whose qualified destination fits, or None."""
        return next((each for each in list(self.values()) if fits(each.destination)), None)

    def end(self, consumer: int) -> dict[str, Subscription]:
        """End the subscriptions of a consumer; return those that the broker has, by name."""
        known = {name: each for name, each in self.items() if each.consumer == consumer}
        standing = {name: each for name, each in known.items() if each.asked and not each.ended}
        for name, each in known.items():
            each.ended = True
            if each.asked and each.unsettled is not None:
                self._leaving[name] = each
            del self[name]
        # From now on the `subscription` header of each message is read: it may be of the ended consumer.
        self.only, self._usual, self._ended = None, None, True
        return standing

    def forget(self, names: Iterable[str]) -> None:
        """Remove ended subscriptions: no more messages of them can arrive."""
        for name in names:
            self._leaving.pop(name, None)

    def of_all(self, frames: Sequence[tuple[bytes, bytes]]) -> Subscription | None:
        """Return the subscription of all these messages, if a quick check finds it; else None.

        On the hot path of a connection that had several: a consumer whose window has grown.

        Args:
            frames: Header block and body of each message.
        """
        if self.only is not None or self._usual is None:
            return self.only
        line, subscription = self._usual
        for head, _ in frames:
            if line not in head:
                return None
        return subscription

    def expect(self, head: bytes) -> None:
        """Expect the next messages on the same subscription as this one."""
        name = self.name_of(head)
        subscription = self.get(name)
        if subscription is not None:
            self._usual = self._line + name.encode() + b"\n", subscription
            if name not in self:
                # Another thread has ended it in between.
                self._usual = None

    def of(self, head: bytes) -> Subscription | None:
        """Return the subscription of the message with this header block; None if its consumer has ended."""
        name = self.name_of(head)
        return self.get(name) or self._leaving.get(name)

    def name_of(self, head: bytes) -> str:
        """Return the name of the subscription of the message with this header block; empty if it has none.

        A producer may have added a `subscription` header, but none with the token.
        """
        at = head.find(self._line)
        if at < 0:
            return ""
        at += len(self._line)
        end = head.find(b"\n", at)
        return (head[at:end] if end >= 0 else head[at:]).decode("utf-8", "replace")

    def delivery(self, whole: tuple[bytes, bytes] | None) -> StompDelivery | None:
        """Return a message, given as header block and body, as a delivery; None if its consumer has ended."""
        subscription = None if whole is None else self.of(whole[0])
        return None if whole is None or subscription is None else subscription.make(subscription, *whole)

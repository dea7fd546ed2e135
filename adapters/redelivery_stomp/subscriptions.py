"""The subscriptions of one connection: which one a MESSAGE belongs to.

At the broker the id of each begins with the connection's token. Here they have the rest of it as their names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery_stomp.delivery import StompDelivery, Subscription

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Subscriptions"]


class Subscriptions(dict[str, Subscription]):
    """The subscriptions of one connection, by name."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._prefix = f"{token}-"
        self._line = f"\nsubscription:{token}-".encode()
        # Set while the connection has had no other: then all messages are of this subscription.
        self.only: Subscription | None = None
        # Of several: the line of the one that brought the last message, and what it shares with its consumer's others.
        self._usual: tuple[bytes, Subscription] | None = None
        # True after a subscription has ended: the broker may still send messages of it.
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
        """End one subscription of a consumer that goes on. The broker sends by another what it still sends by this one.

        From now on a message must name its subscription. Artemis sends some behind the RECEIPT of the UNSUBSCRIBE, and
        an acknowledgement of one of them ends the connection (docs/measured/windows.md, b).
        """
        del self[name]
        self.only, self._usual, self._ended = None, None, True

    def of_consumer(self, consumer: int) -> Subscription | None:
        """Return what the subscriptions of a consumer share, or None. The first of them may have ended."""
        first = self.get(str(consumer))
        return first or next((each for each in self.values() if each.consumer == consumer), None)

    def end(self, consumer: int) -> dict[str, Subscription]:
        """End the subscriptions of a consumer; return, by name, those that the broker has."""
        known = {name: each for name, each in self.items() if each.consumer == consumer}
        standing = {name: each for name, each in known.items() if each.asked and not each.ended}
        for name, each in known.items():
            each.ended = True
            if each.asked and each.unsettled is not None:
                self._leaving[name] = each
            del self[name]
        # From now on a message must name its subscription: it may be of the ended consumer.
        self.only, self._usual, self._ended = None, None, True
        return standing

    def forget(self, names: Iterable[str]) -> None:
        """Remove ended subscriptions: no more messages of them can arrive."""
        for name in names:
            self._leaving.pop(name, None)

    def of_all(self, frames: Sequence[tuple[bytes, bytes]]) -> Subscription | None:
        """Return the subscription of all these messages, given as header blocks and bodies, if it is quickly seen.

        On the hot path of a connection that had several: a consumer whose window has grown.
        """
        if self.only is not None or self._usual is None:
            return self.only
        line, subscription = self._usual
        for head, _ in frames:
            if line not in head:
                return None
        return subscription

    def expect(self, head: bytes) -> None:
        """Take it that the next messages come by the subscription of this one."""
        name = self.name_of(head)
        subscription = self.get(name)
        if subscription is not None:
            self._usual = self._line + name.encode() + b"\n", subscription
            if name not in self:
                # It has ended in between, on another thread.
                self._usual = None

    def of(self, head: bytes) -> Subscription | None:
        """Return the subscription of the message with this header block; None if its consumer has ended."""
        name = self.name_of(head)
        return self.get(name) or self._leaving.get(name)

    def name_of(self, head: bytes) -> str:
        """Return the name of the subscription that sent the message with this header block; empty if it has none.

        A producer may have added a header of that name, but none with the token.
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

"""The subscriptions of one connection: which one a MESSAGE belongs to.

At the broker the id of each begins with the connection's token. Here they have the rest of it as their names.
"""

from __future__ import annotations

from redelivery_stomp.delivery import StompDelivery, Subscription

__all__ = ["Subscriptions"]


class Subscriptions(dict[str, Subscription]):
    """The subscriptions of one connection, by name."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._prefix = f"{token}-"
        self._line = f"\nsubscription:{token}-".encode()
        # Set while the connection has had no other: then all messages are of this subscription.
        self.only: Subscription | None = None
        # True after a consumer has ended: the broker may still send messages of it.
        self._ended = False
        # Subscriptions of ended consumers whose messages may still arrive.
        self._leaving: dict[str, Subscription] = {}

    def wire_id(self, name: str) -> str:
        """Return the id that a subscription has at the broker."""
        return self._prefix + name

    def begin(self, name: str, subscription: Subscription) -> None:
        """Add a subscription, before its first message can arrive."""
        self[name] = subscription
        consumers = {known.consumer for known in self.values()}
        self.only = subscription if len(consumers) == 1 and not self._ended else None

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
        self.only, self._ended = None, True
        return standing

    def forget(self, name: str) -> None:
        """Remove an ended subscription: no more messages of it can arrive."""
        self._leaving.pop(name, None)

    def of(self, head: bytes) -> Subscription | None:
        """Return the subscription of the message with this header block; None if its consumer has ended.

        A producer may have added a header of that name, but none with the token.
        """
        at = head.find(self._line)
        if at < 0:
            return None
        at += len(self._line)
        end = head.find(b"\n", at)
        name = (head[at:end] if end >= 0 else head[at:]).decode("utf-8", "replace")
        return self.get(name) or self._leaving.get(name)

    def delivery(self, whole: tuple[bytes, bytes] | None) -> StompDelivery | None:
        """Return a message, given as header block and body, as a delivery; None if its consumer has ended."""
        subscription = None if whole is None else self.of(whole[0])
        return None if whole is None or subscription is None else subscription.make(subscription, *whole)

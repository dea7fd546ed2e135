"""The subscriptions of one connection: which one a MESSAGE belongs to."""

from __future__ import annotations

from redelivery_stomp.delivery import Subscription

__all__ = ["Subscriptions"]


class Subscriptions(dict[str, Subscription]):
    """The subscriptions of one connection, by id."""

    def __init__(self) -> None:
        super().__init__()
        # Set while the connection has had no other: then all messages are of this subscription.
        self.only: Subscription | None = None
        # True after a consumer has ended: the broker may still send messages of it.
        self._ended = False
        # Subscriptions of ended consumers whose messages may still arrive.
        self._leaving: dict[str, Subscription] = {}

    def begin(self, identity: str, subscription: Subscription) -> None:
        """Add a subscription, before its first message can arrive."""
        self[identity] = subscription
        consumers = {known.consumer for known in self.values()}
        self.only = subscription if len(consumers) == 1 and not self._ended else None

    def end(self, consumer: int) -> dict[str, Subscription]:
        """End the subscriptions of a consumer; return, by id, those that the broker has."""
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

    def forget(self, identity: str) -> None:
        """Remove an ended subscription: no more messages of it can arrive."""
        self._leaving.pop(identity, None)

    def of(self, head: bytes) -> Subscription | None:
        """Return the subscription of the message with this header block."""
        at = head.find(b"\nsubscription:") + 14
        end = head.find(b"\n", at)
        identity = (head[at:end] if end >= 0 else head[at:]).decode()
        return self.get(identity) or self._leaving.get(identity)

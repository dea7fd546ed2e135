"""Which subscription a MESSAGE belongs to."""

from __future__ import annotations

from redelivery_stomp.delivery import Subscription

__all__ = ["Subscriptions"]


class Subscriptions(dict[str, Subscription]):
    """The subscriptions of one connection, by id."""

    def __init__(self) -> None:
        super().__init__()
        self.only: Subscription | None = None  # whose all messages are, as long as there was no other
        self._ended = False  # a consumer has ended: messages of it may still be on their way
        self._leaving: dict[
            str, Subscription
        ] = {}  # of consumers that have ended, until nothing more can come

    def begin(self, identity: str, subscription: Subscription) -> None:
        """Know a subscription before its first message comes."""
        self[identity] = subscription
        consumers = {known.consumer for known in self.values()}
        self.only = subscription if len(consumers) == 1 and not self._ended else None

    def end(self, consumer: int) -> dict[str, Subscription]:
        """Take no more messages of a consumer; return those of its subscriptions that the broker has."""
        known = {name: each for name, each in self.items() if each.consumer == consumer}
        standing = {name: each for name, each in known.items() if each.asked and not each.ended}
        for name, each in known.items():
            each.ended = True
            if each.asked and each.unsettled is not None:
                self._leaving[name] = each
            del self[name]
        self.only, self._ended = None, True  # what is on its way must not be taken for another's, ever
        return standing

    def forget(self, identity: str) -> None:
        """Nothing comes any more of a subscription that has ended."""
        self._leaving.pop(identity, None)

    def of(self, head: bytes) -> Subscription | None:
        """Return whose message a header block is."""
        at = head.find(b"\nsubscription:") + 14
        end = head.find(b"\n", at)
        identity = (head[at:end] if end >= 0 else head[at:]).decode()
        return self.get(identity) or self._leaving.get(identity)

"""What a consumer holds of a broker that takes nothing back before the connection ends.

RabbitMQ: once a subscription has ended its messages can neither be acknowledged nor given back, and those on their way
are never told. So its id is subscribed anew, to a topic that nobody sends to; under it they can be given back, and
those on their way arrive. It ends when no more can come.
"""

from __future__ import annotations

import threading
import uuid
from typing import TYPE_CHECKING

from redelivery_stomp.frames import frame

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from redelivery.errors import RedeliveryError
    from redelivery_stomp.connection import StompConnection
    from redelivery_stomp.delivery import StompDelivery, Subscription

__all__ = ["UnsettledDeliveries", "give_back"]

NOWHERE = f"/topic/redelivery.nowhere.{uuid.uuid4().hex}"


class UnsettledDeliveries:
    """The unsettled deliveries of one subscription."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: set[StompDelivery] = set()
        self._ended = False

    def take(self, deliveries: Sequence[StompDelivery]) -> bool:
        """Keep what has come; return whether its consumer is still there."""
        with self._lock:
            self._held.update(deliveries)
            return not self._ended

    def settled(self, deliveries: Iterable[StompDelivery]) -> None:
        """Keep these no longer."""
        self._held.difference_update(deliveries)

    def end(self) -> list[StompDelivery]:
        """Return what is to be given back; what comes from now on is for the next call."""
        with self._lock:
            self._ended = True
            held, self._held = self._held, set()
            return list(held)


def give_back(link: StompConnection, subscription: Subscription) -> None:
    """End a subscription and give back what its consumer has not settled, and what is still on its way."""
    identity = subscription.identity
    ended = frame(b"UNSUBSCRIBE", [("id", identity)])

    # On an error the connection is over, and everything goes back with it.
    def nowhere(error: RedeliveryError | None) -> None:
        if error is None:
            # The broker answers in order: behind the next answer nothing of the ended subscription comes any more.
            within = [("transaction", f"nothing-{identity}")]
            asked = frame(b"ABORT", [*within, link.receipt(empty)])
            link.write(_returned(subscription) + frame(b"BEGIN", within) + asked)

    def empty(error: RedeliveryError | None) -> None:
        if error is None:
            link.subscriptions.forget(identity)
            link.write(_returned(subscription) + ended)

    again = [
        ("id", identity),
        ("destination", NOWHERE),
        ("ack", "client-individual"),
        link.receipt(nowhere, address=NOWHERE),
    ]
    link.write(ended + frame(b"SUBSCRIBE", again) + _returned(subscription))


def _returned(subscription: Subscription) -> bytes:
    unsettled = subscription.unsettled
    return b"" if unsettled is None else b"".join(each.returned() for each in unsettled.end())

"""Browses: links that show a queue (distribution mode `copy`), drained piece by piece until nothing more comes.

Every method runs under the wire's lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redelivery_amqp.delivery import AmqpDelivery
    from redelivery_amqp.proton_engine import ProtonEngine
    from redelivery_amqp.receiver import ReceiverLink

__all__ = ["BrowseLinks"]


class BrowseLinks:
    """Those of one connection."""

    def __init__(self, wire: ProtonEngine, outcome: int) -> None:
        self._wire = wire
        self._outcome = outcome  # of what was shown
        self._receivers: list[ReceiverLink] = []

    def add(self, receiver: ReceiverLink) -> None:
        """Know one more."""
        self._receivers.append(receiver)

    def remove(self, receiver: ReceiverLink) -> None:
        """Know it no more."""
        self._receivers = [other for other in self._receivers if other is not receiver]

    def ask(self, receiver: ReceiverLink) -> None:
        """Have the broker show so many messages as are wanted."""
        if receiver.credit > 0:
            receiver.came = 0
            self._wire.drain(receiver.handle, receiver.credit)

    def shown(self, receiver: ReceiverLink, deliveries: list[AmqpDelivery]) -> None:
        """Take note of messages that came, and settle them."""
        self._wire.settle([delivery.handle for delivery in deliveries], self._outcome)
        for delivery in deliveries:
            delivery.handle = None
        receiver.came += len(deliveries)

    def busy(self, receiver: ReceiverLink) -> bool:
        """Whether the broker still owes an answer: Artemis gives it even behind the end, on a channel that is none."""
        return receiver.browsing and not self._wire.drained(receiver.handle)

    def over(self) -> tuple[list[ReceiverLink], list[ReceiverLink]]:
        """Return those that have shown all, and those that are to end, and have the others go on.

        A drain that brought something may have been answered too early, on Artemis and Classic.
        """
        ended: list[ReceiverLink] = []
        for receiver in self._receivers:
            if receiver.credit and receiver.browsing and self._wire.broken_off(receiver.handle):
                # Artemis answers a drain in the middle of a message of several frames, and sends the rest of it to who
                # asks for more.
                self._wire.drain(receiver.handle, 1)
                continue
            if not receiver.credit or not receiver.browsing or receiver.leaving or self.busy(receiver):
                continue
            receiver.credit = max(0, receiver.credit - receiver.came)
            if receiver.credit and not receiver.came:
                receiver.credit = 0
                ended.append(receiver)
            # Of what was asked for nothing is left, or some of it is to come.
            else:
                self.ask(receiver)
        return ended, [
            receiver for receiver in self._receivers if receiver.leaving and not self.busy(receiver)
        ]

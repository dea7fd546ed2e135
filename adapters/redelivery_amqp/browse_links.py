"""Browsing links: they show a queue (distribution mode `copy`), and are drained until no more messages arrive.

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
    """Browsing links of one connection."""

    def __init__(self, wire: ProtonEngine, outcome: int) -> None:
        self._wire = wire
        self._outcome = outcome  # of browsed messages
        self._receivers: list[ReceiverLink] = []

    def add(self, receiver: ReceiverLink) -> None:
        """Add a link."""
        self._receivers.append(receiver)

    def remove(self, receiver: ReceiverLink) -> None:
        """Remove a link."""
        self._receivers = [other for other in self._receivers if other is not receiver]

    def ask(self, receiver: ReceiverLink) -> None:
        """Ask the broker for as many messages as the link has credit for."""
        if receiver.credit > 0:
            receiver.came = 0
            self._wire.drain(receiver.handle, receiver.credit)

    def shown(self, receiver: ReceiverLink, deliveries: list[AmqpDelivery]) -> None:
        """Settle messages that have arrived, and count them."""
        self._wire.settle([delivery.handle for delivery in deliveries], self._outcome)
        for delivery in deliveries:
            delivery.handle = None
        receiver.came += len(deliveries)

    def busy(self, receiver: ReceiverLink) -> bool:
        """True if the broker has not answered a drain.

        Artemis sends that answer even after the end of the session, on a channel that does not exist any more.
        """
        return receiver.browsing and not self._wire.drained(receiver.handle)

    def over(self) -> tuple[list[ReceiverLink], list[ReceiverLink]]:
        """Return the links that have shown all, and those that are to end; ask the others for more.

        Artemis and Classic sometimes answer a drain too early. A link has shown all when a drain brought no message.
        """
        # Those that the broker has refused or ended have no further turn.
        self._receivers = [receiver for receiver in self._receivers if not receiver.ended]
        ended: list[ReceiverLink] = []
        for receiver in self._receivers:
            if receiver.credit and receiver.browsing and self._wire.broken_off(receiver.handle):
                # Artemis answers a drain in the middle of a message of several frames. It sends the rest of the message
                # when the link asks for more.
                self._wire.drain(receiver.handle, 1)
                continue
            if not receiver.credit or not receiver.browsing or receiver.leaving or self.busy(receiver):
                continue
            receiver.credit = max(0, receiver.credit - receiver.came)
            if receiver.credit and not receiver.came:
                receiver.credit = 0
                ended.append(receiver)
            # The consumer's credit is used up, or more messages can arrive.
            else:
                self.ask(receiver)
        return ended, [
            receiver for receiver in self._receivers if receiver.leaving and not self.busy(receiver)
        ]

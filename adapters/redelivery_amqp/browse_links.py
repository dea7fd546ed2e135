"""Browses: links that show a queue (distribution mode `copy`), drained piece by piece until nothing more comes.

Every method runs under the wire's lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redelivery_amqp.delivery import AmqpDelivery
    from redelivery_amqp.proton_engine import Wire
    from redelivery_amqp.receiver import Inlet

__all__ = ["Browses"]


class Browses:
    """Those of one connection."""

    def __init__(self, wire: Wire, outcome: int) -> None:
        self._wire = wire
        self._outcome = outcome  # of what was shown
        self._inlets: list[Inlet] = []

    def add(self, inlet: Inlet) -> None:
        """Know one more."""
        self._inlets.append(inlet)

    def remove(self, inlet: Inlet) -> None:
        """Know it no more."""
        self._inlets = [other for other in self._inlets if other is not inlet]

    def ask(self, inlet: Inlet) -> None:
        """Have the broker show so many messages as are wanted."""
        if inlet.credit > 0:
            inlet.came = 0
            self._wire.drain(inlet.handle, inlet.credit)

    def shown(self, inlet: Inlet, deliveries: list[AmqpDelivery]) -> None:
        """Take note of messages that came, and settle them."""
        self._wire.settle([delivery.handle for delivery in deliveries], self._outcome)
        for delivery in deliveries:
            delivery.handle = None
        inlet.came += len(deliveries)

    def busy(self, inlet: Inlet) -> bool:
        """Whether the broker still owes an answer: Artemis gives it even behind the end, on a channel that is none."""
        return inlet.browsing and not self._wire.drained(inlet.handle)

    def over(self) -> tuple[list[Inlet], list[Inlet]]:
        """Return those that have shown all, and those that are to end, and have the others go on.

        A drain that brought something may have been answered too early, on Artemis and Classic.
        """
        ended: list[Inlet] = []
        for inlet in self._inlets:
            if not inlet.credit or not inlet.browsing or inlet.leaving or self.busy(inlet):
                continue
            inlet.credit = max(0, inlet.credit - inlet.came)
            if inlet.credit and not inlet.came:
                inlet.credit = 0
                ended.append(inlet)
            else:  # of what was asked for nothing is left, or some of it is to come
                self.ask(inlet)
        return ended, [inlet for inlet in self._inlets if inlet.leaving and not self.busy(inlet)]

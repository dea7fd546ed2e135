"""Browses: links that show a queue (distribution mode `copy`), drained piece by piece until nothing more comes.

Every method runs under the wire's lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery_amqp.wire import RELEASED

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from redelivery_amqp.delivery import AmqpDelivery
    from redelivery_amqp.inlet import Inlet
    from redelivery_amqp.wire import Wire

__all__ = ["Browses"]


ROUNDS = (
    20  # that a queue may be shown again in a row with nothing new, none of them whole: it is being emptied
)


class Shown:
    """What a browse has shown, where each drain begins anew and its answer may come before the end: on Classic."""

    def __init__(self) -> None:
        self._all: set[Hashable] = set()
        self._round: set[Hashable] = set()
        self._rounds = 0

    def begin(self) -> int:
        """Begin a round; return how many messages it will show once more."""
        self._round = set()
        return len(self._all)

    def new(self, deliveries: Sequence[AmqpDelivery]) -> list[AmqpDelivery]:
        """Return those that have not been shown before."""
        found: list[AmqpDelivery] = []
        for delivery in deliveries:
            key = delivery.key or delivery.raw  # a message without an id is known by all that it is
            if key not in self._all:
                found.append(delivery)
            self._all.add(key)
            self._round.add(key)
        return found

    def complete(self) -> bool:
        """Whether a round that brought nothing new has shown all."""
        self._rounds += 1
        return len(self._round) >= len(self._all) or self._rounds >= ROUNDS


class Browses:
    """Those of one connection."""

    def __init__(self, wire: Wire, *, begins_anew: bool) -> None:
        self._wire = wire
        self._begins_anew = begins_anew
        self._inlets: list[Inlet] = []
        self._shown: dict[int, Shown] = {}

    def add(self, inlet: Inlet) -> None:
        """Know one more."""
        self._inlets.append(inlet)
        if self._begins_anew:
            self._shown[inlet.consumer] = Shown()

    def remove(self, inlet: Inlet) -> None:
        """Know it no more."""
        self._inlets = [other for other in self._inlets if other is not inlet]
        self._shown.pop(inlet.consumer, None)

    def ask(self, inlet: Inlet) -> None:
        """Have the broker show so many messages as are wanted."""
        if inlet.credit > 0:
            inlet.came = 0
            shown = self._shown.get(inlet.consumer)
            again = 0 if shown is None else shown.begin()
            self._wire.drain(inlet.handle, inlet.credit + again)

    def shown(self, inlet: Inlet, deliveries: list[AmqpDelivery]) -> list[AmqpDelivery]:
        """Take note of messages that came; return the new ones. All are released: it loses none if they were taken."""
        self._wire.settle([delivery.handle for delivery in deliveries], RELEASED)
        for delivery in deliveries:
            delivery.handle = None
        shown = self._shown.get(inlet.consumer)
        new = deliveries if shown is None else shown.new(deliveries)
        inlet.came += len(new)
        return new

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
            shown = self._shown.get(inlet.consumer)
            if inlet.credit and not inlet.came and (shown is None or shown.complete()):
                inlet.credit = 0
                ended.append(inlet)
            else:  # of what was asked for nothing is left, or some of it is to come
                self.ask(inlet)
        return ended, [inlet for inlet in self._inlets if inlet.leaving and not self.busy(inlet)]

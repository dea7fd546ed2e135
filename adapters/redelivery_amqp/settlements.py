"""Settlement of deliveries: by this side, or by a broker after its consumer timeout.

Every method runs under the wire's lock.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

import proton

from redelivery_amqp.io_thread import ACCEPTED, REJECTED, RELEASED
from redelivery_amqp.notes import annotations_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redelivery_amqp.delivery import AmqpDelivery
    from redelivery_amqp.disconnect_cause import AmqpDisconnectCause
    from redelivery_amqp.io_thread import ProtonEngine
    from redelivery_amqp.receiver import ReceiverLink

__all__ = ["Settlements"]

DUE = "x-opt-delivery-time"
LATEST = 253_402_300_799_000
"""Milliseconds since the Unix epoch: the last second of the year 9999, the latest that Python's dates have."""

_by_arrival = attrgetter("number")


class Settlements:
    """Settlements of one connection."""

    def __init__(self, wire: ProtonEngine, epoch: int, blame: AmqpDisconnectCause) -> None:
        self._wire = wire
        self._epoch = epoch
        self._blame = blame

    def reject(self, delivery: AmqpDelivery, notes: Mapping[str, str | int]) -> None:
        """Reject a delivery: the broker dead-letters it.

        On a quorum queue of RabbitMQ 4, settle it as undeliverable (`modified`): only then does the dead letter keep
        notes. The broker drops the error of a rejection.
        """
        if delivery.source.keeps_notes:
            self._give_back(delivery, annotations_of(notes), dead=True)
        else:
            self.settle([delivery], REJECTED)

    def reschedule(self, delivery: AmqpDelivery, due: float, notes: Mapping[str, str | int]) -> None:
        """Release a delivery uncounted, with notes; the broker redelivers it at the wall-clock time `due`.

        Only for quorum queues. The broker keeps the time (measured: 1 to 40 ms late).
        """
        at = proton.timestamp(min(round(due * 1000), LATEST))
        self._give_back(delivery, {**annotations_of(notes), DUE: at}, dead=False)

    def _give_back(self, delivery: AmqpDelivery, annotations: Mapping[str, object], *, dead: bool) -> None:
        if own := self._begin((delivery,)):
            self._wire.modify(delivery.handle, annotations, dead=dead)
            _end(own)

    def settle(self, deliveries: Sequence[AmqpDelivery], outcome: int) -> None:
        """Settle deliveries of this connection; those that cannot be settled any more are left out."""
        if own := self._begin(deliveries):
            self._wire.settle([d.handle for d in own], outcome)
            _end(own)

    def give_back(self, receiver: ReceiverLink) -> None:
        """Release the deliveries that no handler has, before a link ends.

        Broker-J and Classic raise the delivery count of a message that is unsettled when its link ends.
        """
        if receiver.profile.declares and receiver.handle is not None:
            # RabbitMQ 4 would send released messages to the same link again. A classic queue of RabbitMQ counts what
            # is unsettled at the end of a link.
            self._wire.withdraw(receiver.handle)
        self.settle([delivery for delivery in receiver.unsettled if delivery.state != "running"], RELEASED)

    def _begin(self, deliveries: Sequence[AmqpDelivery]) -> list[AmqpDelivery]:
        """Return those that can be settled, in the order of arrival: neighbours with one outcome share a frame."""
        own = [
            d for d in deliveries if d.epoch == self._epoch and d.handle is not None and not d.source.ended
        ]
        if len(own) > 1:
            own.sort(key=_by_arrival)
        if own:
            self._blame.saw(own[-1])
            # All of them belong to one consumer.
            own[-1].source.progress.written += 1
        return own

    def released(self, receiver: ReceiverLink) -> list[AmqpDelivery]:
        """Accept the deliveries that the broker has released itself; return them in the order of arrival.

        RabbitMQ 4.3 releases deliveries after its consumer timeout. It ends the session over a settlement without an
        outcome, and sends nothing more to the consumer before all of them are accepted. The acceptance changes nothing
        for the message. `released` and `modified` are no answer: the consumer would get no messages until it grants
        credit (measured).
        """
        handles, receiver.released = set(receiver.released), []
        own = sorted((each for each in receiver.unsettled if each.handle in handles), key=_by_arrival)
        self.settle(own, ACCEPTED)
        return own


def _end(own: Sequence[AmqpDelivery]) -> None:
    """Forget deliveries that are settled."""
    for delivery in own:
        delivery.handle = None
        delivery.source.unsettled.discard(delivery)
    own[-1].source.large.forget(own)

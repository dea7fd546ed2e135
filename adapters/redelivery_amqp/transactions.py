"""The AMQP transaction "send the dead letter, accept the original": all of it, or none.

Each message has its own: declare, send the copy, and only when the broker has taken the copy into the transaction
accept the original in it too. A discharge sent along with the copy would commit the acceptance though the copy was
refused, and the message would be gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import proton

from redelivery.errors import AdapterError, RedeliveryError
from redelivery_amqp.inlet import refusal
from redelivery_amqp.outlet import judged

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery_amqp.delivery import AmqpDelivery
    from redelivery_amqp.outlet import Outcome, Outlet
    from redelivery_amqp.wire import Wire

__all__ = ["Transfer"]

DECLARE, DISCHARGE, DECLARED = 0x31, 0x32, 0x33


def _control(descriptor: int, fields: list[Any]) -> bytes:
    message = proton.Message()
    message.body = proton.Described(proton.ulong(descriptor), fields)
    return bytes(message.encode())


class Transfer:
    """One transaction. Every method runs under the wire's lock."""

    def __init__(
        self,
        wire: Wire,
        coordinator: Outlet,
        outlet: Outlet,
        delivery: AmqpDelivery,
        copy: bytes,
        answer: Callable[[RedeliveryError | None], None],
    ) -> None:
        self._wire = wire
        self._coordinator = coordinator
        self._outlet = outlet
        self._delivery = delivery
        self._copy = copy
        self._answer = answer
        self._id = b""

    def begin(self) -> None:
        """Declare."""
        self._coordinator.send(_control(DECLARE, [None]), self._declared)

    def _declared(self, outcome: Outcome) -> None:
        if isinstance(outcome, RedeliveryError):
            self._answer(outcome)
            return
        data = outcome.remote.data
        if outcome.remote_state != DECLARED or not data:
            self._answer(
                refusal("the broker began no transaction", outcome.remote.condition, self._wire.masked)
            )
            return
        self._id = bytes(data[0])
        self._outlet.send(self._copy, self._sent, self._id)

    def _sent(self, outcome: Outcome) -> None:
        error = judged(outcome, self._outlet.where, self._wire.masked)
        handle = self._delivery.handle
        if error is None and (handle is None or self._delivery.source.ended):
            error = AdapterError("the consumer has ended")
        if error is not None:
            self._discharge(lambda _: self._answer(error), failed=True)
            return
        self._wire.within(handle, self._id)
        self._discharge(self._committed, failed=False)

    def _discharge(self, then: Callable[[Outcome], None], *, failed: bool) -> None:
        self._coordinator.send(_control(DISCHARGE, [self._id, failed]), then)

    def _committed(self, outcome: Outcome) -> None:
        error = judged(outcome, "the transaction coordinator", self._wire.masked)
        if error is None and self._delivery.handle is not None:
            self._wire.forget(self._delivery.handle)
            self._delivery.handle = None
            self._delivery.source.unsettled.discard(self._delivery)
        self._answer(error)

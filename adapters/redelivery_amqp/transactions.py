"""The AMQP transaction "send these, accept those": all of it, or none.

A dead letter has its own: declare, send the copy, and only when the broker has taken the copy into the transaction
accept the original in it too. A discharge sent along with the copy would commit the acceptance though the copy was
refused, and the message would be gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import proton

from redelivery.errors import AdapterError, RedeliveryError, TransportError
from redelivery_amqp.receiver import refusal
from redelivery_amqp.sender import judged

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redelivery_amqp.delivery import AmqpDelivery
    from redelivery_amqp.proton_engine import ProtonEngine
    from redelivery_amqp.sender import Outcome, SenderLink

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
        wire: ProtonEngine,
        coordinator: SenderLink,
        messages: Sequence[tuple[SenderLink, bytes]],
        deliveries: Sequence[AmqpDelivery],
        answer: Callable[[RedeliveryError | None], None],
        broken: Callable[[RedeliveryError], None],
    ) -> None:
        self._wire = wire
        self._coordinator = coordinator
        self._messages = messages
        self._deliveries = deliveries
        self._answer = answer
        # The connection must be made again.
        self._broken = broken
        self._id = b""
        self._unanswered = len(messages)
        self._error: RedeliveryError | None = None  # the first

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
        for sender, message in self._messages:
            sender.send(message, self._answer_of(sender), self._id)
        if not self._messages:
            self._accept()

    def _answer_of(self, sender: SenderLink) -> Callable[[Outcome], None]:
        def sent(outcome: Outcome) -> None:
            self._error = self._error or judged(outcome, sender.where, self._wire.masked)
            self._unanswered -= 1
            if not self._unanswered:
                self._accept()

        return sent

    def _accept(self) -> None:
        error = self._error
        # The transaction is gone with it: nothing is settled in it.
        if self._coordinator.error is not None:
            self._answer(self._coordinator.error)
            return
        if error is None and any(each.handle is None or each.source.ended for each in self._deliveries):
            error = AdapterError("the consumer has ended")
        if error is not None:
            self._discharge(lambda _: self._answer(error), failed=True)
            return
        for delivery in self._deliveries:
            self._wire.within(delivery.handle, self._id)
        self._discharge(self._committed, failed=False)

    def _discharge(self, then: Callable[[Outcome], None], *, failed: bool) -> None:
        self._coordinator.send(_control(DISCHARGE, [self._id, failed]), then)

    def _committed(self, outcome: Outcome) -> None:
        error = judged(outcome, "the transaction coordinator", self._wire.masked)
        # The coordinator has ended without an answer.
        if isinstance(outcome, AdapterError):
            error = TransportError(f"{outcome}, before it had answered")
            if self._deliveries:
                self._broken(error)  # whose loss is the answer
                return
        for delivery in self._deliveries if error is None else ():
            if delivery.handle is not None:
                self._wire.forget(delivery.handle)
                delivery.handle = None
                delivery.source.unsettled.discard(delivery)
                delivery.source.large.forget((delivery,))
        self._answer(error)
        if isinstance(error, AdapterError) and self._deliveries:
            # What has had a part in a transaction is not settled again: proton would write the new outcome behind the
            # old one, over which Classic and Broker-J close the connection; Artemis says yes, and closes it later
            # (measured). Over a new connection it comes again.
            self._broken(
                TransportError(f"a commit was refused, and its messages cannot be settled again ({error})")
            )

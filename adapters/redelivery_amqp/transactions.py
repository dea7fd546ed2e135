"""AMQP transaction that sends messages and accepts deliveries, all or nothing.

A dead letter has its own transaction: declare, send the copy, and accept the original only after the broker has taken
the copy into the transaction. A discharge sent together with the copy would commit the acceptance although the copy was
refused, and the message would be lost.
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
        # Called when the connection must be replaced.
        self._broken = broken
        self._id = b""
        self._unanswered = len(messages)
        self._error: RedeliveryError | None = None  # the first

    def begin(self) -> None:
        """Declare the transaction."""
        self._coordinator.send(_control(DECLARE, [None]), self._declared)

    def _declared(self, outcome: Outcome) -> None:
        if isinstance(outcome, RedeliveryError):
            self._answer(outcome)
            return
        data = outcome.remote.data
        if outcome.remote_state != DECLARED or not data:
            self._answer(
                refusal(
                    "the broker refused to begin a transaction", outcome.remote.condition, self._wire.masked
                )
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
        # The transaction ended with its coordinator: nothing is settled in it.
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
        # The coordinator's link has ended without an answer.
        if isinstance(outcome, AdapterError):
            error = TransportError(f"{outcome}, before it answered the commit")
            if self._deliveries:
                # The loss of the connection is the answer.
                self._broken(error)
                return
        for delivery in self._deliveries if error is None else ():
            if delivery.handle is not None:
                self._wire.forget(delivery.handle)
                delivery.handle = None
                delivery.source.unsettled.discard(delivery)
                delivery.source.large.forget((delivery,))
        self._answer(error)
        if isinstance(error, AdapterError) and self._deliveries:
            # Deliveries of a transaction are not settled again: proton would write the new outcome after the old one.
            # Classic and Broker-J close the connection over that; Artemis confirms, and closes it later (measured). The
            # broker redelivers the messages on the next connection.
            self._broken(
                TransportError(
                    f"the broker refused a commit ({error}); the connection is replaced, because the messages of the "
                    "commit cannot be settled again on it"
                )
            )

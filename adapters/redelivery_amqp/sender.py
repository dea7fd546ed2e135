"""Sending link, one for each destination: attached at its first use, kept until the connection ends."""

from __future__ import annotations

import itertools
from collections import deque
from typing import TYPE_CHECKING, Any

import proton

from redelivery.errors import AdapterError, RedeliveryError, TransportError
from redelivery_amqp.io_thread import TRANSACTIONAL
from redelivery_amqp.receiver import refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redelivery_amqp.delivery import AmqpDelivery
    from redelivery_amqp.io_thread import ProtonEngine
    from redelivery_amqp.profile_base import AmqpProfile

__all__ = ["SenderLink", "Transfer"]


# ---- Sender ----------------------------------------------------------------------------------------------

if TYPE_CHECKING:
    Answer = Callable[[RedeliveryError | None], None]
    Outcome = proton.Delivery | RedeliveryError


COORDINATOR = "the transaction coordinator"


class SenderLink:
    """One sending link. Messages are queued here until the broker has given credit."""

    _tags = itertools.count(1)

    def __init__(self, where: str) -> None:
        self.where = where  # for errors
        self.attached = False
        self.error: RedeliveryError | None = None
        self._sender: Any = None
        self.session: Any = None
        self._waiting: deque[tuple[bytes, bytes | None, Callable[[Outcome], None]]] = deque()
        self._sent: dict[str, tuple[Any, Callable[[Outcome], None]]] = {}
        self._opened: list[Answer] = []

    def attach(
        self, connection: proton.Connection, name: str, destination: str | None, profile: AmqpProfile
    ) -> None:
        """Attach the link, in a new session; `destination` None: the transaction coordinator."""
        self.session = connection.session()
        self.session.open()
        self._sender = sender = self.session.sender(name)
        target = sender.target
        if destination is None:
            target.type = proton.Terminus.COORDINATOR
            target.capabilities.put_object(proton.symbol("amqp:local-transactions"))
        else:
            kind = destination.partition("://")[0]
            target.address = profile.address(destination)
            if profile.capability and kind != "native":
                target.capabilities.put_object(proton.symbol(kind.removeprefix("temp-")))
            if profile.durable_terminus and kind == "queue":
                target.durability = proton.Terminus.DELIVERIES
        sender.open()

    @property
    def idle(self) -> bool:
        """True if no message is queued, and none awaits its outcome."""
        return self.attached and self.error is None and not self._waiting and not self._sent

    def when_attached(self, answer: Answer) -> None:
        """Call `answer` with None when the link is attached, or with the error."""
        if self.attached or self.error is not None:
            answer(self.error)
        else:
            self._opened.append(answer)

    def on_attached(self) -> None:
        """Handle the broker's answer. It has no target if the attach is refused; the reason follows with a detach."""
        target = self._sender.remote_target
        if target.address is not None or target.type == proton.Terminus.COORDINATOR:
            self.attached = True
            opened, self._opened = self._opened, []
            for answer in opened:
                answer(None)
            self.pump()

    def send(
        self, message: bytes, outcome: Callable[[Outcome], None], transaction: bytes | None = None
    ) -> None:
        """Send a message; `outcome` gets the delivery with the broker's outcome, or an error."""
        if self.error is not None:
            outcome(self.error)
            return
        self._waiting.append((message, transaction, outcome))
        self.pump()

    def pump(self) -> None:
        """Send queued messages, as many as the credit allows."""
        sender = self._sender
        while self._waiting and self.attached and sender.credit > 0:
            message, transaction, outcome = self._waiting.popleft()
            most = sender.remote_max_message_size  # bytes; 0: no limit
            if 0 < most < len(message):
                outcome(
                    AdapterError(
                        f"a message to {self.where} was not sent: it has {len(message)} bytes when encoded, and the "
                        f"broker takes at most {most}"
                    )
                )
                continue
            tag = str(next(self._tags))
            delivery = sender.delivery(tag)
            sender.stream(message)
            if transaction is not None:
                delivery.local.data = [transaction]
                delivery.update(TRANSACTIONAL)
            self._sent[tag] = (delivery, outcome)
            sender.advance()

    def on_outcome(self, delivery: proton.Delivery) -> None:
        """Handle the broker's outcome of a message."""
        if not delivery.remote_state and not delivery.settled:
            return
        known = self._sent.pop(str(delivery.tag), None)
        if known is not None:
            known[1](delivery)
            delivery.settle()

    def close(self) -> None:
        """End the link and its session."""
        self._sender.close()
        self.session.close()

    def free(self) -> None:
        """Free the session, and the link with it."""
        self.session.free()
        self._sender = self.session = None

    def fail(self, error: RedeliveryError) -> None:
        """Handle the end of the link: all pending answers get the error."""
        self.error = error
        opened, self._opened = self._opened, []
        waiting = [outcome for _, _, outcome in self._waiting]
        sent = [outcome for _, outcome in self._sent.values()]
        self._waiting.clear()
        self._sent.clear()
        for answer in [*opened, *waiting]:
            answer(error)
        if isinstance(error, AdapterError) and error.passes is not False and self.where != COORDINATOR:
            # No refusal for good: the broker may have taken these before it ended the link.
            error = TransportError(f"{error}; the message to {self.where} may have been sent")
        for outcome in sent:
            outcome(error)


def unheard(outcome: Outcome, destination: str) -> bool:
    """True if a topic has no subscriber: RabbitMQ 4 releases such a message, other brokers accept it."""
    if isinstance(outcome, RedeliveryError) or not destination.startswith("topic://"):
        return False
    return outcome.remote_state == proton.Delivery.RELEASED


def judged(outcome: Outcome, where: str, masked: Callable[[str], str]) -> RedeliveryError | None:
    """Return None for a message that the broker has accepted; else the error."""
    if isinstance(outcome, RedeliveryError):
        return outcome
    state, condition = outcome.remote_state, outcome.remote.condition
    if state == TRANSACTIONAL:
        data: list[Any] = outcome.remote.data or []
        inner: Any = data[1] if len(data) > 1 else None
        state = proton.Delivery.ACCEPTED if inner is None else int(inner.descriptor)
        condition = None
    if state == proton.Delivery.ACCEPTED:
        return None
    if state == proton.Delivery.REJECTED:
        return refusal(f"the broker rejected a message to {where}", condition, masked)
    return AdapterError(f"the broker did not accept a message to {where}, and gave no reason")


# ---- Transactions ----------------------------------------------------------------------------------------
# AMQP transaction that sends messages and accepts deliveries, all or nothing.
#
# A dead letter has its own transaction: declare, send the copy, and accept the original only after the broker has
# taken the copy into the transaction. A discharge sent together with the copy would commit the acceptance although
# the copy was refused, and the message would be lost.

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

"""Receiving link of a consumer, with the state that all its deliveries share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import proton

from redelivery.adapter_support.refusals import passes, shortened, with_cure
from redelivery.core.credit import MOST_BYTES
from redelivery.errors import AdapterError
from redelivery_amqp.sections import LargeMaps
from redelivery_amqp.settlement_progress import SettlementProgress
from redelivery_amqp.subscribed_names import SubscribedNames

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery.core.capabilities import Capabilities
    from redelivery.core.commands import Subscribe
    from redelivery.errors import RedeliveryError
    from redelivery_amqp.delivery import AmqpDelivery, DeliverySource
    from redelivery_amqp.io_thread import Handle, ProtonEngine
    from redelivery_amqp.profile_base import AmqpProfile
    from redelivery_amqp.queue_facts import QueueFacts

__all__ = ["BrowseLinks", "ReceiverLink", "RoundTrip", "refusal", "when_settled"]


# ---- Receiver --------------------------------------------------------------------------------------------

FRAME = proton.Transport().max_frame_size
"""Bytes of a frame at most: proton's default."""
SELECTOR = proton.symbol("apache.org:selector-filter:string")
CONSUMER_TIMEOUT = proton.symbol("rabbitmq:consumer-timeout")


class ReceiverLink:
    """Receiving link in its own session: RabbitMQ answers a mistake on a link by ending its session."""

    def __init__(
        self,
        command: Subscribe,
        epoch: int,
        profile: AmqpProfile,
        answer: Callable[[RedeliveryError | None], None],
    ) -> None:
        self.command = command
        self.consumer = command.consumer
        self.epoch = epoch
        self.profile = profile
        self.destination = command.destination
        self.kind = command.destination.partition("://")[0]
        self.names = SubscribedNames(command.destination, profile)
        # Only then does a message's `to` count: a dead letter can still name its old queue.
        self.many = self.names.many
        # Credit given before the link is attached; of a browse: requested and not used up.
        self.credit = 0
        # When the broker last got credit (monotonic seconds).
        self.credited = float("-inf")
        # Of a browse: messages that arrived since the last drain.
        self.came = 0
        # True for a browse whose consumer was closed, until its drain is answered.
        self.leaving = False
        self.ended = False
        # Address of the queue, if it is not that of the destination.
        self.address: str | None = None
        self.facts: QueueFacts | None = None
        # True: attached as the consumer of a queue, although its address does not say so.
        self.as_queue = False
        # Capabilities with the broker's own dead-letter place for this queue; None: it was not asked.
        self.able: Capabilities | None = None
        self.progress = SettlementProgress(asked=command.in_step)
        self.attached = False
        # True from the first delivery on.
        self.delivered = False
        self.handle: Handle | None = None
        self.session: Any = None
        self.unsettled: set[AmqpDelivery] = set()
        # What has arrived of a message that is not complete yet.
        self.begun = bytearray()
        # Deliveries that the broker has released itself.
        self.released: list[Handle] = []
        self.large = LargeMaps()
        self._tell = answer
        self._told = False
        self._receiver: Any = None

    @property
    def selects_in_queue(self) -> bool:
        """True for a selector on a queue that is named with its address, as Artemis does.

        It takes the consumer for a subscriber, whose selector must be the filter of its queue, and ends the connection
        if it is not (docs/measured/artemis-dead-letter-address.md).
        """
        return self.command.selector is not None and self.kind == "native" and "::" in self.destination

    @property
    def browsing(self) -> bool:
        """True if the link browses, and is attached."""
        return self.command.browse and self.attached and not self.ended

    @property
    def _durable(self) -> bool:
        """True if the broker keeps a durable subscription by the link's name; False: its own queue keeps it."""
        return self.command.subscription is not None and not self.profile.declares

    @property
    def keeps_notes(self) -> bool:
        """True if the queue keeps notes on its messages."""
        return self.profile.declares and self.facts is not None and self.facts.kind == "quorum"

    def attach(self, connection: proton.Connection, name: str) -> None:
        """Attach the link, in a new session."""
        command = self.command
        self.session = connection.session()
        # The broker sends no more than this before it reads that credit was withdrawn. For small messages, each of
        # which counts as a whole frame, it is twice the credit: they need not wait for more of the window.
        most = max(command.window, command.most)
        self.session.incoming_capacity = max(MOST_BYTES, 2 * most * FRAME)
        self.session.open()
        self._receiver = receiver = self.session.receiver(name)
        source = receiver.source
        self.describe(source)
        if command.selector is not None:
            source.filter.put_object({SELECTOR: proton.Described(SELECTOR, command.selector)})
        if self._durable:
            source.durability = proton.Terminus.DELIVERIES
            source.expiry_policy = proton.Terminus.EXPIRE_NEVER
        timeout = self.profile.consumer_timeout(command.hold)
        if timeout is not None:
            # The broker ignores a value of any other type (4.3.6).
            receiver.properties = {CONSUMER_TIMEOUT: proton.uint(int(timeout * 1000))}
        receiver.open()
        self.handle = receiver._impl

    def describe(self, source: proton.Terminus) -> None:
        """Fill in the source terminus: address, distribution mode, capabilities, durability."""
        address = self.profile.standing if self.command.existing else self.profile.pattern
        source.address = self.address or address(self.destination)
        if self.command.browse:
            source.distribution_mode = proton.Terminus.DIST_MODE_COPY
        kind = "queue" if self.as_queue else self.kind
        if self.profile.capability and kind != "native":
            source.capabilities.put_object(proton.symbol(kind.removeprefix("temp-")))
        if self.profile.durable_terminus and self.kind == "queue":
            source.durability = proton.Terminus.DELIVERIES

    def on_attached(self) -> None:
        """Handle the broker's answer. It has no source if the attach is refused; the reason follows with a detach."""
        if self._receiver.remote_source.address is not None:
            self.attached = True
            self.answer(None)

    def answer(self, error: RedeliveryError | None) -> None:
        """Report the result of the subscription, once."""
        if not self._told:
            self._told = True
            self._tell(error)

    def stopped(self, error: RedeliveryError) -> None:
        """Report that the broker has ended the consumer."""
        self._tell(error)

    def detach(self, *, alone: bool = False) -> None:
        """End the link; also its session, unless the link ends `alone`. A durable subscription stays."""
        self.ended = True
        if self._receiver is None:
            return
        if self._durable:
            self._receiver.detach()
        elif alone:
            self._receiver.close()
        else:
            self.close()

    def close(self) -> None:
        """End the link and its session."""
        self._receiver.close()
        self.session.close()

    def free(self) -> None:
        """Free the session, and the link and its deliveries with it: none of them can be settled any more."""
        for delivery in self.unsettled:
            delivery.handle = None
        self.unsettled.clear()
        self.session.free()
        self._receiver = self.session = self.handle = None


def refusal(what: str, condition: proton.Condition | None, masked: Callable[[str], str]) -> AdapterError:
    """Return the error for what the broker refused or ended, with the broker's text `masked`."""
    if condition is None:
        return AdapterError(f"{what}, and gave no reason")
    text = masked(condition.description or condition.name)
    return AdapterError(f"{what}: {with_cure(shortened(text))}", passes=passes(text, condition.name))


# ---- Round trip ------------------------------------------------------------------------------------------
# Round trip that confirms earlier settlements: no broker answers a disposition.
#
# Classic, Artemis and RabbitMQ dead-letter a rejected message without an answer, whether the rejection was settled
# or not (measured). All of them process the frames of a session in order. The answer to a later attach in the same
# session therefore confirms the rejection. The link is a second one from the same address, which the consumer may
# read, and it never has credit.

if TYPE_CHECKING:
    Answer = Callable[[RedeliveryError | None], None]


class RoundTrip:
    """One attach and its answer."""

    def __init__(self, receiver: DeliverySource, name: str, answer: Answer) -> None:
        self._answer: Answer | None = answer
        self.session = receiver.session
        self._receiver = receiver.session.receiver(name)
        receiver.describe(self._receiver.source)
        self._receiver.open()

    def on_attached(self) -> None:
        """Handle the broker's answer."""
        self._receiver.close()
        self._tell(None)

    def on_ended(self) -> None:
        """Handle the end of the link; a refusal is an answer too."""
        self._tell(None)

    def free(self) -> None:
        """Free the link. Only if its session goes on: a session is freed with its links."""
        self._receiver.free()

    def fail(self, error: RedeliveryError) -> None:
        """Report that there is no answer."""
        self._tell(error)

    def _tell(self, error: RedeliveryError | None) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            answer(error)


def when_settled(
    receiver: DeliverySource, answer: Answer, ask: Callable[[DeliverySource, Answer], None]
) -> None:
    """Call `answer` when the broker has carried out the settlements of a link; at once if that is known or not needed.

    RabbitMQ processes each session independently. When the connection is cut, the broker can have taken a copy and drop
    acceptances that were written before it on another session (measured: four).
    """
    progress, written = receiver.progress, receiver.progress.written
    if not progress.doubtful:
        answer(None)
        return

    def carried_out(error: RedeliveryError | None) -> None:
        if error is None:
            progress.carried_out(written)
        answer(error)

    ask(receiver, carried_out)


# ---- Browse links ----------------------------------------------------------------------------------------
# Browsing links: they show a queue (distribution mode `copy`), and are drained until no more messages arrive.
#
# Every method runs under the wire's lock.


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

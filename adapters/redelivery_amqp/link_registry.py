"""Links of one connection: consumers, senders, management links, and round trips that await an answer.

Every method runs under the wire's lock. Events for a sink go through `later`, because a sink takes the library's own
locks.
"""

from __future__ import annotations

import itertools
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from redelivery.adapter import Browsed
from redelivery.adapter_support.refusals import GONE
from redelivery.adapter_support.sockets import ResponseTimeout
from redelivery.core.events import Arrived, QueueFound, TakenBack
from redelivery.errors import AdapterError, TransportError
from redelivery_amqp.artemis_node import ArtemisNode, LinkQuestions
from redelivery_amqp.declarations import Declarations
from redelivery_amqp.delivery import AmqpDelivery
from redelivery_amqp.detach import DetachQueue
from redelivery_amqp.disconnect_cause import AT_ONCE, AmqpDisconnectCause, end_of
from redelivery_amqp.io_thread import ACCEPTED, RELEASED
from redelivery_amqp.management_link import BrokerJNode, Management, ManagementLink, RabbitNode
from redelivery_amqp.receiver import BrowseLinks, ReceiverLink, RoundTrip, refusal, when_settled
from redelivery_amqp.sender import SenderLink
from redelivery_amqp.sender_links import SenderLinks
from redelivery_amqp.session_limit import SessionLimit
from redelivery_amqp.settlements import Settlements

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    import proton

    from redelivery.adapter import Sink
    from redelivery.core.capabilities import Capabilities
    from redelivery.core.commands import Subscribe
    from redelivery.errors import RedeliveryError
    from redelivery_amqp.delivery import DeliverySource
    from redelivery_amqp.disconnect_cause import End
    from redelivery_amqp.io_thread import Handle, ProtonEngine
    from redelivery_amqp.management_link import ManagementNode
    from redelivery_amqp.profile_base import AmqpProfile

__all__ = ["CreditTurns", "LinkRegistry"]


# ---- Credit turns ----------------------------------------------------------------------------------------
# Turns in which the consumers of a connection get their first credit.
#
# RabbitMQ closes the whole connection over a message that it cannot deliver, and does not say of which queue. On the
# next connection the consumers therefore get their first credit one after another: if that connection ends too, the
# last one is known. Usually all get it at once.
#
# Every method runs under the wire's lock.


class CreditTurns:
    """Credit of the attached consumers of one connection.

    Args:
        wire: The engine that credit is written to.
        after: Called without the lock after `AT_ONCE` seconds; it calls `next`.
        apart: True: consumers get their first credit so many seconds apart.
    """

    def __init__(self, wire: ProtonEngine, after: Callable[[], None], *, apart: bool) -> None:
        self._wire = wire
        self._apart = apart
        self._timer = ResponseTimeout(after, AT_ONCE)
        self._waiting: dict[ReceiverLink, int] = {}
        # Consumers that have had their turn.
        self._served: set[ReceiverLink] = set()

    def flow(self, receiver: ReceiverLink, credit: int) -> None:
        """Change the credit of a consumer now, or at its turn; `credit` below 0 takes some back."""
        if not self._apart:
            self._grant(receiver, credit)
            return
        credit += self._waiting.pop(receiver, 0)
        if credit > 0:
            self._waiting[receiver] = credit
            if not self._served:
                self.next()
        elif credit < 0:
            self._grant(receiver, credit)

    def next(self) -> None:
        """Begin the turn of the next consumer; after the last one, all get what has come for them meanwhile."""
        receiver = next((each for each in self._waiting if each not in self._served), None)
        if receiver is None:
            self._end()
            return
        self._served.add(receiver)
        self._grant(receiver, self._waiting.pop(receiver))
        self._timer.asked()

    def forget(self, receiver: ReceiverLink) -> None:
        """Drop the credit of a consumer that ends."""
        self._waiting.pop(receiver, None)

    def quiet(self) -> None:
        """End the turns, and write nothing: the connection is lost."""
        self._waiting.clear()
        self._timer.end()

    def _end(self) -> None:
        self._apart = False
        self._timer.end()
        waiting, self._waiting = self._waiting, {}
        for receiver, credit in waiting.items():
            self._grant(receiver, credit)

    def _grant(self, receiver: ReceiverLink, credit: int) -> None:
        if credit > 0:
            receiver.credited = time.monotonic()
        self._wire.flow(receiver.handle, credit)


# ---- Link registry ---------------------------------------------------------------------------------------

if TYPE_CHECKING:
    Answer = Callable[[RedeliveryError | None], None]
    Action = Callable[[], None]
    Link = ReceiverLink | SenderLink | RoundTrip | ManagementLink


class LinkRegistry:
    """All links of one connection, by their names."""

    def __init__(
        self,
        wire: ProtonEngine,
        profile: AmqpProfile,
        container: str,
        epoch: int,
        sink: Sink,
        later: Callable[[Action], None],
        broken: Callable[[RedeliveryError, End, str | None], None],
        flush: Callable[[], None],
        *,
        apart: bool = False,
    ) -> None:
        self._wire = wire
        self._profile = profile
        self._container = container
        self._epoch = epoch
        self._sink = sink
        self._later = later
        # Called when the connection must be replaced.
        self._broken = broken
        # Called by a timer thread that has given proton something to write.
        self._flush = flush
        self._receivers: dict[int, ReceiverLink] = {}  # by the consumer's number
        self._named: dict[str, Link] = {}
        self._by_handle: dict[Any, ReceiverLink] = {}
        self._numbers = 0
        self._round_trips = itertools.count(1)
        self._blame = AmqpDisconnectCause()
        # The consumer whose session or link the broker has ended, and the connection with it.
        self._ended: ReceiverLink | None = None
        self._turns = CreditTurns(wire, self._next_turn, apart=apart)
        self.settlements = Settlements(wire, epoch, self._blame)
        self.detaches = DetachQueue(self._stuck, self._unended, in_turn=profile.sessions_in_turn)
        self._browses = BrowseLinks(wire, ACCEPTED if profile.accepts_shown else RELEASED)
        self._sessions = SessionLimit(wire, self.detaches)
        self._management = Management(wire, self._manage)
        # Dead-letter destinations that took messages once. The adapter keeps them over all connections.
        self.proven: set[str] = set()
        # Dead-letter destinations whose address has had more queues, and the name that reaches the one alone. It is
        # kept while that queue is gone: Artemis refuses it then, and gives the others what is sent to the address.
        self._alone: dict[str, str] = {}
        self._declarations = Declarations(self._management, container, epoch, profile)
        # True: this broker lists its queues, and reports where its own settings put dead letters.
        self.asks = profile.capabilities.tells_dead_letters
        self.questions = LinkQuestions(self._management, profile, self._without_answer)
        self._node = _node_of(profile)
        self.senders = SenderLinks(
            wire, profile, self._sessions, self._declarations, self._register_sender, self._forget
        )

    def _stuck(self) -> None:
        with self._wire.lock:
            self._broken(TransportError("the broker did not answer the end of a consumer"), "cut", None)

    def _unended(self) -> None:
        with self._wire.lock:
            self.detaches.go_on()
            self._flush()

    def _without_answer(self) -> None:
        with self._wire.lock:
            self.questions.late()
            self._flush()

    def _next_turn(self) -> None:
        with self._wire.lock:
            self._turns.next()
            self._flush()

    # Called by the adapter.

    def knows(self, consumer: int) -> bool:
        """True if there is a consumer with this number."""
        return consumer in self._receivers

    def capabilities_of(self, consumer: int) -> Capabilities | None:
        """Return the capabilities of a consumer's queue; None: unknown, or those of the broker."""
        receiver = self._receivers.get(consumer)
        if receiver is None:
            return None
        if receiver.able is not None or receiver.facts is None:
            return receiver.able
        return self._profile.for_queue(receiver.facts, receiver.command)

    def alone_name(self, place: str) -> str:
        """Return the destination that reaches the queue of a place, and no other one of its address."""
        if (alone := self.questions.known.alone(place)) != place:
            self._alone[place] = alone
        return self._alone.get(place, place)

    def add(self, command: Subscribe, answer: Answer) -> ReceiverLink:
        """Add a consumer, to be attached later. One that is refused before is forgotten: it may be asked for again."""

        def answered(error: RedeliveryError | None) -> None:
            if error is not None and receiver.handle is None:
                receiver.ended = True
                if self._receivers.get(command.consumer) is receiver:
                    del self._receivers[command.consumer]
            answer(error)

        receiver = self._receivers[command.consumer] = ReceiverLink(
            command, self._epoch, self._profile, answered
        )
        if command.browse:
            self._browses.add(receiver)
        return receiver

    def attach(self, receiver: ReceiverLink) -> None:
        """Attach a consumer's link, unless the consumer has ended meanwhile."""
        self._declarations.for_receiver(receiver, partial(self._declared, receiver))

    def _declared(self, receiver: ReceiverLink, error: RedeliveryError | None) -> None:
        if error is None:
            # One session is kept free for dead letters.
            self._sessions.begin(partial(self._attach, receiver), partial(self._declared, receiver), spare=1)
        elif not receiver.ended:
            receiver.answer(error)

    def _attach(self, receiver: ReceiverLink) -> None:
        name = receiver.command.subscription or f"{self._container}-{self._epoch}-{receiver.consumer}"
        if name in self._named:
            # The broker knows a durable subscription by the name of its link, and the old link has not ended yet.
            receiver.answer(
                AdapterError(
                    f"the durable subscription {name} is in use on this connection; close its consumer first"
                )
            )
        elif not receiver.ended:
            receiver.attach(self._wire.connection, name)
            self._named[name] = self._by_handle[receiver.handle] = receiver
            if receiver.command.browse:
                self._browses.ask(receiver)
            else:
                self._turns.flow(receiver, receiver.credit)

    def flow(self, consumer: int, credit: int) -> None:
        """Change a consumer's credit."""
        receiver = self._receivers.get(consumer)
        if receiver is None:
            return
        if receiver.handle is None:
            receiver.credit = max(0, receiver.credit + credit)
        elif receiver.command.browse:
            receiver.credit += credit
            self._browses.ask(receiver)
        else:
            self._turns.flow(receiver, credit)

    def browse_on(self) -> None:
        """Report the browses that have shown all, and end those whose consumer was closed."""
        ended, leaving = self._browses.over()
        for receiver in ended:
            self._later(_told(self._sink, Browsed(receiver.consumer)))
        for receiver in leaving:
            self._leave(receiver)

    def detach(self, consumer: int) -> None:
        """End a consumer's link."""
        receiver = self._receivers.pop(consumer, None)
        if receiver is not None and self._browses.busy(receiver):
            receiver.leaving = True
        elif receiver is not None:
            self._leave(receiver)

    def _leave(self, receiver: ReceiverLink) -> None:
        self._turns.forget(receiver)
        self._browses.remove(receiver)
        self.settlements.give_back(receiver)
        self.detaches.leave(receiver)

    def end(self) -> None:
        """End every consumer's link, before the connection is closed.

        When a connection with attached links closes, Classic raises the delivery counts of all messages that the links
        ever had, released ones too. It does not if the links were detached before.
        """
        for consumer in list(self._receivers):
            self.detach(consumer)

    def _register_sender(self, sender: SenderLink) -> str:
        name = f"{self._container}-{self._epoch}-to-{next(self._round_trips)}-{sender.where}"
        self._named[name] = sender
        return name

    def _forget(self, one: Link) -> None:
        self._named = {name: known for name, known in self._named.items() if known is not one}

    def _manage(self) -> ManagementLink:
        name = f"{self._container}-{self._epoch}-management-{next(self._round_trips)}"
        link = self._named[name] = ManagementLink(self._wire, name, self._node)
        self._sessions.begin(
            lambda: link.attach(self._wire.connection), lambda error: self._management.ended(link, error)
        )
        return link

    def reject(self, delivery: AmqpDelivery, notes: Mapping[str, str | int], answer: Answer) -> None:
        """Reject a delivery, with notes where the queue keeps them; call `answer` when the broker has done it."""
        self.settlements.reject(delivery, notes)
        self._ask(delivery.source, answer)

    def when_settled(self, receiver: DeliverySource, answer: Answer) -> None:
        """Call `answer` when the broker has carried out the settlements of a link; at once if that is not needed."""
        when_settled(receiver, answer, self._ask)

    def _ask(self, receiver: DeliverySource, answer: Answer) -> None:
        name = f"{self._container}-{self._epoch}-barrier-{next(self._round_trips)}"
        self._named[name] = RoundTrip(receiver, name, answer)

    # Events of proton.

    def take(self, readable: set[Handle], now: float) -> None:
        """Report the messages that have arrived on these links at the wall-clock time `now`."""
        for handle in readable:
            if self._management.holds(handle):
                self._management.take()
                continue
            receiver = self._by_handle.get(handle)
            found = self._wire.take(handle, bytearray() if receiver is None else receiver.begun)
            if receiver is None or receiver.ended or not found:
                continue
            number = self._numbers
            self._numbers += len(found)
            deliveries = [
                AmqpDelivery(receiver, data, pointer, number + i, now)
                for i, (data, pointer) in enumerate(found)
            ]
            if receiver.command.browse:
                self._browses.shown(receiver, deliveries)
            else:
                receiver.unsettled.update(deliveries)
            self._blame.saw(deliveries[-1])
            if not receiver.leaving:
                if not receiver.delivered:
                    self._look(receiver, deliveries[0])
                self._later(_told(self._sink, Arrived(receiver.consumer, deliveries)))

    def _look(self, receiver: ReceiverLink, first: AmqpDelivery) -> None:
        """Report what the first delivery of a link shows of its queue."""
        receiver.delivered = True
        if (found := self._profile.for_delivered(first.annotations)) is not None:
            self._later(_told(self._sink, QueueFound(receiver.consumer, found)))

    def on_session_closed(self, event: proton.Event) -> None:
        """Handle a session that the broker has ended, and its links with it."""
        for one in [one for one in self._named.values() if one.session == event.session]:
            self._end(one, event.session.remote_condition)
        event.session.close()
        self.detaches.over(event.session)

    def on_opened(self, event: proton.Event) -> None:
        """Handle the broker's answer to an attach."""
        if (one := self._named.get(event.link.name)) is not None:
            one.on_attached()

    def on_closed(self, event: proton.Event) -> None:
        """Handle a link that the broker has ended, or whose end it has answered."""
        if (one := self._named.get(event.link.name)) is not None:
            self._end(one, event.link.remote_condition)
            if isinstance(one, RoundTrip):
                # Its session is that of a consumer, and goes on.
                self.detaches.ended(one)

    def on_flow(self, event: proton.Event) -> None:
        """Handle credit for a sender."""
        one = self._named.get(event.link.name)
        if isinstance(one, SenderLink | ManagementLink):
            one.pump()

    def on_delivery(self, event: proton.Event) -> None:
        """Handle the outcome of a sent message, or the broker's own release of a delivery."""
        one = self._named.get(event.link.name)
        if isinstance(one, SenderLink):
            one.on_outcome(event.delivery)
            self.senders.answered(one, event.delivery.remote_state)
        elif isinstance(one, ReceiverLink) and event.delivery.remote_state == RELEASED:
            one.released.append(event.delivery._impl)
        elif isinstance(one, ManagementLink) and event.link.is_receiver:
            # Replies arrive settled. proton reports such a message as an update of a delivery.
            self._management.take()
        elif isinstance(one, ManagementLink) and not one.on_outcome(event.delivery, self._wire.masked):
            self._broken(TransportError("the broker could not take a request to its management"), "cut", None)

    def taken_back(self) -> None:
        """Report the deliveries that the broker has released itself."""
        for receiver in [receiver for receiver in self._by_handle.values() if receiver.released]:
            if own := self.settlements.released(receiver):
                self._later(_told(self._sink, TakenBack(receiver.consumer, own)))

    def _end(self, one: Link, condition: proton.Condition | None) -> None:
        self._forget(one)
        if isinstance(one, RoundTrip):
            one.on_ended()
            return
        if isinstance(one, ManagementLink):
            self.detaches.close(one)
            error = refusal("the broker ended its management link", condition, self._wire.masked)
            if one.broken_off:
                # The next connection asks again.
                self._broken(TransportError(str(error)), "cut", None)
            else:
                self._management.ended(one, error)
            return
        if isinstance(one, SenderLink):
            self.senders.forget(one)
            self.detaches.close(one)
            verb = "ended the link to" if one.attached else "refused to take messages for"
            one.fail(refusal(f"the broker {verb} {one.where}", condition, self._wire.masked))
            return
        self._by_handle.pop(one.handle, None)
        if one.ended:
            self.detaches.answered(one)
            return
        one.ended = True
        self.detaches.close(one)
        self._receivers.pop(one.consumer, None)
        verb = "ended the" if one.attached else "refused a"
        error = refusal(f"the broker {verb} consumer of {one.destination}", condition, self._wire.masked)
        if not one.attached:
            one.answer(error)
            return
        if condition is not None and condition.name in GONE and not error.passes:
            one.stopped(error)
        # RabbitMQ's consumer timeout, or an administrator: the next connection subscribes again.
        else:
            self._ended = one
            name = None if condition is None else condition.name
            self._broken(error, end_of(name), name)

    def undelivered(self, condition: str | None) -> bool:
        """True if the broker ends connections with this condition over messages that it cannot deliver."""
        return condition is not None and condition == self._profile.undelivered

    def suspect(self, end: End, condition: str | None) -> tuple[Hashable | None, int | None]:
        """Return the message over which the connection ended, and its consumer; None where unknown."""
        receivers = [receiver for receiver in self._receivers.values() if receiver.attached]
        if self.undelivered(condition):
            concerned = receivers if self._ended is None else [self._ended]
            return self._blame.undelivered(concerned, self._profile.deliver_elsewhere)
        partial = [receiver for handle, receiver in self._by_handle.items() if self._wire.begun(handle)]
        return self._blame.suspect(end, receivers, partial)

    def fail(self, error: RedeliveryError) -> None:
        """Handle the loss of the connection: all pending answers get the error."""
        self.detaches.fail()
        self._turns.quiet()
        self.questions.fail(error)
        for one in list(self._named.values()):
            if not isinstance(one, ReceiverLink):
                one.fail(error)


def _node_of(profile: AmqpProfile) -> ManagementNode:
    if profile.declares:
        return RabbitNode()
    return BrokerJNode() if profile.reports_queues else ArtemisNode(profile)


def _told(sink: Sink, event: Arrived | Browsed | QueueFound | TakenBack) -> Callable[[], None]:
    return lambda: sink(event)

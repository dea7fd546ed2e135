"""The memory broker: one lock over queues, subscriptions and connections.

Everything changes with the lock held. There, events are put into the outbox of their connection, in one order. The
thread that caused them passes them on after it has released the lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from redelivery.adapter import Browsed, Sent, Subscribed
from redelivery.core.commands import (
    Accept,
    Commit,
    Credit,
    Forward,
    ForwardAll,
    Hold,
    PoisonAck,
    Release,
    Send,
    Subscribe,
    Unsubscribe,
    outdated,
)
from redelivery.core.events import Arrived, Confirmed, ConnectionLost
from redelivery.errors import RedeliveryError, TransactionRolledBack
from redelivery_memory.connection import MemoryConnection, MemoryConsumer, drain
from redelivery_memory.messages import MemoryDelivery
from redelivery_memory.state import MemoryState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redelivery.adapter import Sink
    from redelivery.core.commands import AdapterCommand
    from redelivery.core.delivery import Delivery
    from redelivery.core.outgoing import Outgoing

__all__ = ["MemoryServer"]


class MemoryServer(MemoryState):
    """The broker of `memory://name`. `MemoryBroker` is its public class."""

    # Connections.

    def connect(self, epoch: int, sink: Sink, client_id: str | None) -> MemoryConnection:
        """Open a connection. Raises the error of `Faults.connections`, if it is set."""
        with self.lock:
            if self.faults.connections is not None:
                raise self.faults.connections()
            link = MemoryConnection(epoch, sink, client_id)
            self.links[link] = None
            return link

    def disconnect(
        self,
        links: Sequence[MemoryConnection],
        lost: Callable[[MemoryConnection], ConnectionLost] | None = None,
    ) -> None:
        """End connections; their unsettled messages go back, counted. `lost`: the event of a cut."""
        with self.lock:
            for link in links:
                if not link.open:
                    continue
                link.open = False
                self.links.pop(link, None)
                link.outbox.clear()
                for consumer in link.consumers.values():
                    self._end(consumer)
                link.consumers.clear()
                if lost is not None:
                    self._post(link, lost(link))
            ringing = self._pump()
        drain(ringing)

    # Commands.

    def execute(self, link: MemoryConnection, commands: Sequence[AdapterCommand]) -> None:
        """Carry out the commands of a connection, and pass on the events that follow."""
        with self.lock:
            for command in () if outdated(commands, link.epoch) else commands:
                if not link.open:
                    break
                self._do(link, command)
            ringing = self._pump()
        drain(ringing)

    def send(self, message: Outgoing) -> str:
        """Store a message that was sent without a connection; return its id. Raises as `Routes.to` does."""
        with self.lock:
            stored = self._take(message)
            ringing = self._pump()
        drain(ringing)
        return stored.message_id

    def _do(self, link: MemoryConnection, command: AdapterCommand) -> None:
        match command:
            case Accept():
                for delivery in command.deliveries:
                    self._accept(link, delivery)
            case Credit():
                consumer = link.consumers.get(command.consumer)
                if consumer is not None and consumer.browses:
                    self._show(consumer, command.messages)
                elif consumer is not None:
                    # Credit may be withdrawn too late: the messages have been sent already.
                    consumer.credit = max(0, consumer.credit + command.messages)
                    for queue in consumer.queues:
                        queue.hungry(consumer)
                        self._dirty[queue] = None
            case Send():
                self._post(link, Sent(command.token, self._refusal(command.message)), confirms=True)
            case PoisonAck():
                self._poison(link, command)
            case Forward():
                self._forward(link, command)
            case Hold() | Release() | Subscribe() | Unsubscribe() | Commit() | ForwardAll():
                self._do_more(link, command)
            case _:
                assert_never(command)

    def _do_more(
        self, link: MemoryConnection, command: Hold | Release | Subscribe | Unsubscribe | Commit | ForwardAll
    ) -> None:
        match command:
            case Hold():
                # Credit is in messages here: what is parked fills no window.
                pass
            case Release():
                for delivery in command.deliveries:
                    found = self._settled(link, delivery)
                    if found is not None:
                        self._note("released", found.stored)
                        self._put_back(found)
            case Subscribe():
                self._subscribe(link, command)
            case Unsubscribe():
                consumer = link.consumers.pop(command.consumer, None)
                if consumer is not None:
                    self._end(consumer)
            case ForwardAll():
                self._forward_all(link, command)
            case Commit():
                self._post(link, Sent(command.token, self._commit(link, command)), confirms=True)
            case _:
                assert_never(command)

    def _commit(self, link: MemoryConnection, command: Commit) -> RedeliveryError | None:
        """Carry out the whole transaction, or return why nothing of it was carried out."""
        if any(self._unsettled(link, delivery) is None for delivery in command.deliveries):
            return TransactionRolledBack(
                "the transaction was rolled back: the connection of one of its messages is gone"
            )
        error: RedeliveryError | None = self.faults.for_send()
        if error is not None:
            return error
        try:
            for message in command.messages:
                self.routes.to(message.destination)
        except RedeliveryError as refused:
            return refused
        for message in command.messages:
            self._take(message)
        for delivery in command.deliveries:
            found = self._settled(link, delivery)
            if found is not None:
                self._note("accepted", found.stored)
        return None

    def _accept(self, link: MemoryConnection, delivery: Delivery) -> None:
        consumer = link.consumers.get(delivery.consumer)
        if consumer is None:
            return
        if self.faults.accepts and delivery in consumer.unsettled and self.faults.loses_accept():
            self._note("dropped", consumer.unsettled[delivery].stored)
            return
        found = consumer.unsettled.pop(delivery, None)
        if found is not None:
            self._note("accepted", found.stored)
            found.stored.body = b""

    def _poison(self, link: MemoryConnection, command: PoisonAck) -> None:
        found = self._unsettled(link, command.delivery)
        error = None
        # Not found if an answer was stalled and the client repeats the command: then it was carried out before.
        if found is not None:
            error = self.faults.for_settlement(found.stored)
            self._note("refused" if error else "poisoned", found.stored)
        if found is not None and error is None:
            self._settled(link, command.delivery)
            self._bury(found.stored, command)
        self._confirm(link, command.delivery, error)

    def _forward(self, link: MemoryConnection, command: Forward) -> None:
        found = self._unsettled(link, command.delivery)
        error: RedeliveryError | None = None
        if found is not None:
            error = self.faults.for_forward(found.stored) or self._refusal(command.copy, faults=False)
            self._note("refused" if error else "forwarded", found.stored)
            if error is None:
                self._settled(link, command.delivery)
        self._confirm(link, command.delivery, error)

    def _forward_all(self, link: MemoryConnection, command: ForwardAll) -> None:
        found = [(each, f) for each in command.forwards if (f := self._unsettled(link, each.delivery))]
        error: RedeliveryError | None = next(
            (e for _, held in found if (e := self.faults.for_forward(held.stored))), None
        )
        if error is None and found:
            copies, deliveries = [each.copy for each, _ in found], [each.delivery for each, _ in found]
            error = self._commit(link, Commit(0, deliveries, copies))
        for each in command.forwards:
            self._confirm(link, each.delivery, error)

    def _confirm(self, link: MemoryConnection, delivery: Delivery, error: RedeliveryError | None) -> None:
        if delivery.epoch == link.epoch:
            self._post(link, Confirmed(delivery, error), confirms=True)

    def _subscribe(self, link: MemoryConnection, command: Subscribe) -> None:
        if command.consumer in link.consumers:
            # A second one would outlive its end.
            return
        consumer = MemoryConsumer(link, command.consumer, browses=command.browse)
        try:
            self.routes.join(consumer, command)
        except RedeliveryError as error:
            self._post(link, Subscribed(command.consumer, error))
            return
        link.consumers[command.consumer] = consumer
        self._post(link, Subscribed(command.consumer))

    def _show(self, consumer: MemoryConsumer, messages: int) -> None:
        """Show a browser so many more messages, and report the end of the queue."""
        after = consumer.shown
        waiting = [(s.number, s, queue) for queue in consumer.queues for s in queue if s.number > after]
        found = sorted(waiting, key=lambda one: one[0])[:messages]
        if found:
            consumer.shown = found[-1][0]
            shown = [MemoryDelivery(consumer, queue, stored) for _, stored, queue in found]
            self._post(consumer.link, Arrived(consumer.number, shown))
        if len(found) < messages:
            self._post(consumer.link, Browsed(consumer.number))

    def _unsettled(self, link: MemoryConnection, delivery: Delivery) -> MemoryDelivery | None:
        consumer = link.consumers.get(delivery.consumer)
        return None if consumer is None else consumer.unsettled.get(delivery)

    def _settled(self, link: MemoryConnection, delivery: Delivery) -> MemoryDelivery | None:
        consumer = link.consumers.get(delivery.consumer)
        return None if consumer is None else consumer.unsettled.pop(delivery, None)

    def _end(self, consumer: MemoryConsumer) -> None:
        """End a consumer; its unsettled messages go back, with one delivery more."""
        for delivery in consumer.unsettled:
            found = consumer.unsettled[delivery]
            found.stored.count += 1
            self._note("returned", found.stored)
            self._put_back(found)
        consumer.unsettled = {}
        consumer.credit = 0
        self.routes.leave(consumer)

    def resume(self) -> None:
        """Pass on the confirmations that were stalled."""
        with self.lock:
            stalled, self.faults.stalled = self.faults.stalled or [], None
            for link, event in stalled:
                if link.open:
                    self._post(link, event)
            ringing = self._pump()
        drain(ringing)

"""Core of the memory broker: one lock over queues, subscriptions and connections.

All state changes with the lock held. Events are put into the outbox of their connection under the lock, in one order.
The thread that caused them passes them to the sinks after it has released the lock.
"""

from __future__ import annotations

import threading
import uuid
from collections import deque
from typing import TYPE_CHECKING, assert_never

from redelivery.adapter import Browsed, Sent, Subscribed
from redelivery.adapter_support.keyboard_interrupts import Uninterrupted
from redelivery.clock import capped
from redelivery.core.commands import (
    Accept,
    Commit,
    Credit,
    Forward,
    ForwardAll,
    Hold,
    PoisonAck,
    Release,
    Reschedule,
    Send,
    Subscribe,
    Unsubscribe,
    outdated,
)
from redelivery.core.delivery import EXPIRED
from redelivery.core.events import Arrived, Confirmed, ConnectionLost
from redelivery.errors import AdapterError, RedeliveryError, TransactionRolledBack
from redelivery_memory.messages import HeldMessage, MemoryDelivery, Step, StoredMessage, dead_letter
from redelivery_memory.queues import Routes

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

    from redelivery.adapter import AdapterEvent, Sink
    from redelivery.clock import Cancel, Clock
    from redelivery.core.commands import AdapterCommand
    from redelivery.core.delivery import Delivery
    from redelivery.core.outgoing import Outgoing
    from redelivery_memory.queues import Queue

__all__ = ["DEAD_LETTERS", "MemoryConnection", "MemoryConsumer", "MemoryServer"]


# ---- Connection ------------------------------------------------------------------------------------------
# Broker's end of a connection: its consumers, and the outbox of its events.


class MemoryConsumer:
    """One subscription of one connection. The broker's lock guards all of its state."""

    __slots__ = (
        "batch", "browses", "credit", "epoch", "link", "matches", "number", "queues", "shown", "unsettled",
    )  # fmt: skip

    def __init__(self, link: MemoryConnection, number: int, *, browses: bool = False) -> None:
        self.browses = browses
        # Number of the last message that was shown to a browser.
        self.shown = 0
        self.link = link
        self.number = number
        self.epoch = link.epoch
        self.credit = 0
        self.queues: list[Queue] = []
        self.unsettled: dict[Delivery, MemoryDelivery] = {}
        # Deliveries for the next `Arrived` event.
        self.batch: list[MemoryDelivery] = []


class MemoryConnection:
    """One connection, from `open` until it is closed or cut."""

    def __init__(self, epoch: int, sink: Sink, client_id: str | None) -> None:
        self.epoch = epoch
        self.client_id = client_id
        self.open = True
        self.consumers: dict[int, MemoryConsumer] = {}
        # Appended to with the broker's lock held.
        self.outbox: deque[AdapterEvent] = deque()
        self._sink = sink
        self._draining = threading.Lock()
        self._drainer: int | None = None

    def holder(self, message: Hashable) -> tuple[Hashable, int] | None:
        """Return the key of a message, given by key or id, and the number of the consumer that has it unsettled.

        None: no consumer of this connection has it. The caller has the broker's lock.
        """
        for consumer in self.consumers.values():
            for delivery in consumer.unsettled.values():
                if message in (delivery.key, delivery.message_id):
                    return delivery.key, consumer.number
        return None

    def drain(self) -> None:
        """Pass the events of the outbox to the sink, in order.

        If another thread is passing events, it continues with the new ones, and this call returns.
        """
        outbox = self.outbox
        while outbox:
            if not self._draining.acquire(blocking=False):
                return
            self._drainer = threading.get_ident()
            try:
                while outbox:
                    try:
                        event = outbox.popleft()
                    # The connection was cut or closed meanwhile.
                    except IndexError:
                        break
                    self._sink(event)
            finally:
                self._drainer = None
                self._draining.release()

    def settle(self, timeout: float) -> None:
        """Wait up to `timeout` seconds until no other thread is inside the sink: no event runs later."""
        if self._drainer != threading.get_ident() and self._draining.acquire(
            timeout=capped(max(0.0, timeout))
        ):
            self._draining.release()


class _Turn(threading.local):
    """Connections that this thread still has to drain."""

    def __init__(self) -> None:
        self.links: deque[MemoryConnection] | None = None


_turn = _Turn()


def drain(links: Iterable[MemoryConnection]) -> None:
    """Pass on the events of these connections.

    Inside a sink, the call leaves the connections to the outer call: a chain of consumers that send to each other must
    not become a chain of stack frames or of locks.
    """
    if _turn.links is not None:
        _turn.links.extend(links)
        return
    todo = _turn.links = deque(links)
    try:
        while todo:
            todo.popleft().drain()
    finally:
        _turn.links = None


# ---- Faults ----------------------------------------------------------------------------------------------
# Faults that a test injects into the memory broker.


class Faults:
    """Counters of the commands to refuse or lose. The broker's lock guards all of them."""

    def __init__(self) -> None:
        self.settlements: int | Callable[[HeldMessage], bool] = 0
        self.forwards = 0
        self.sends = 0
        self.send_error: Callable[[], RedeliveryError] | None = None
        self.accepts = 0
        self.consumers: dict[str | None, Callable[[], RedeliveryError]] = {}
        self.connections: Callable[[], RedeliveryError] | None = None
        self.stalled: list[tuple[MemoryConnection, AdapterEvent]] | None = None

    def for_settlement(self, stored: StoredMessage) -> AdapterError | None:
        """Return the refusal of a poison acknowledgement or a forward; None: it is carried out."""
        rule = self.settlements
        if isinstance(rule, int):
            if rule <= 0:
                return None
            self.settlements = rule - 1
        elif not rule(HeldMessage.of(stored, delivered=True)):
            return None
        return AdapterError(
            f"the broker refused to settle {stored.message_id}: MemoryBroker.refuse_settlements()"
        )

    def for_forward(self, stored: StoredMessage) -> AdapterError | None:
        """Return the refusal of a forward; None: it is carried out."""
        if self.forwards <= 0:
            return self.for_settlement(stored)
        self.forwards -= 1
        return AdapterError(
            f"the broker refused the copy of {stored.message_id}: MemoryBroker.fail_forward()"
        )

    def for_consumer(self, destination: str) -> RedeliveryError | None:
        """Return the refusal of a consumer; None: it is taken."""
        refusal = self.consumers.get(destination) or self.consumers.get(None)
        return None if refusal is None else refusal()

    def for_send(self) -> RedeliveryError | None:
        """Return the refusal of a send; None: it is carried out."""
        if self.sends <= 0:
            return None
        self.sends -= 1
        if self.send_error is not None:
            return self.send_error()
        return AdapterError("the broker refused the message: MemoryBroker.refuse_sends()")

    def loses_accept(self) -> bool:
        """True if the next accept is lost; it is counted."""
        if self.accepts <= 0:
            return False
        self.accepts -= 1
        return True


# ---- Server ----------------------------------------------------------------------------------------------

DEAD_LETTERS = "queue://DLQ"
# Most steps that `history` returns: more than any test reads.
STEPS = 10_000


class MemoryServer:
    """Broker of `memory://name`; `MemoryBroker` is its public class. The caller of a private method has the lock."""

    def __init__(self, name: str, clock: Clock) -> None:
        self.name = name
        self.clock = clock
        self.lock = threading.Lock()
        self.faults = Faults()
        self.routes = Routes()
        self.links: dict[MemoryConnection, None] = {}
        self.steps: deque[tuple[str, str, str, float]] = deque(maxlen=STEPS)
        # Ids must differ from those of an earlier broker of this name.
        self._ids = f"ID:{name}-{uuid.uuid4().hex[:8]}-"
        self._number = 0
        self._dirty: dict[Queue, None] = {}
        self._ringing: dict[MemoryConnection, None] = {}
        self._delayed: dict[int, Cancel] = {}

    def close(self) -> None:
        """Stop the timers of delayed messages."""
        with self.lock:
            delayed = list(self._delayed.values())
            self._delayed.clear()
        for cancel in delayed:
            cancel()

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
        """End connections; their unsettled messages are on their queues again, counted.

        `lost`: Returns the event that a connection gets; None: no event, the connection was closed.
        """
        with Uninterrupted():
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
        """Carry out the commands of a connection, and pass on the resulting events."""
        with Uninterrupted():
            with self.lock:
                for command in () if outdated(commands, link.epoch) else commands:
                    if not link.open:
                        break
                    self._do(link, command)
                ringing = self._pump()
            drain(ringing)

    def send(self, message: Outgoing) -> str:
        """Store a message that was sent without a connection; return its id. Raises as `Routes.to` does."""
        with Uninterrupted():
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
                    # A withdrawal can be too late: the messages have been delivered already.
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
            case Hold() | Release() | Subscribe() | Unsubscribe() | Commit() | ForwardAll() | Reschedule():
                self._do_more(link, command)
            case _:
                assert_never(command)

    def _do_more(
        self,
        link: MemoryConnection,
        command: Hold | Release | Subscribe | Unsubscribe | Commit | ForwardAll | Reschedule,
    ) -> None:
        match command:
            case Hold():
                # Nothing to do: credit counts messages, and there is no window in bytes that parked ones fill.
                pass
            case Release():
                for delivery in command.deliveries:
                    found = self._settled(link, delivery)
                    if found is not None:
                        self._note("released", found.kept)
                        self._put_back(found)
            case Reschedule():
                self._reschedule(link, command)
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
                self._note("accepted", found.kept)
        return None

    def _accept(self, link: MemoryConnection, delivery: Delivery) -> None:
        consumer = link.consumers.get(delivery.consumer)
        if consumer is None:
            return
        if self.faults.accepts and delivery in consumer.unsettled and self.faults.loses_accept():
            self._note("dropped", consumer.unsettled[delivery].kept)
            return
        found = consumer.unsettled.pop(delivery, None)
        if found is not None:
            self._note("accepted", found.kept)
            found.kept.body = b""

    def _poison(self, link: MemoryConnection, command: PoisonAck) -> None:
        found = self._unsettled(link, command.delivery)
        error = None
        # Not found if a confirmation was stalled and the client repeats the command: it was carried out before.
        if found is not None:
            error = self.faults.for_settlement(found.kept)
            self._note("refused" if error else "poisoned", found.kept)
        if found is not None and error is None:
            self._settled(link, command.delivery)
            self._bury(found.kept, command)
        self._confirm(link, command.delivery, error)

    def _forward(self, link: MemoryConnection, command: Forward) -> None:
        found = self._unsettled(link, command.delivery)
        error: RedeliveryError | None = None
        if found is not None:
            error = self.faults.for_forward(found.kept) or self._refusal(command.copy, faults=False)
            self._note("refused" if error else "forwarded", found.kept)
            if error is None:
                self._settled(link, command.delivery)
        self._confirm(link, command.delivery, error)

    def _forward_all(self, link: MemoryConnection, command: ForwardAll) -> None:
        found = [(each, f) for each in command.forwards if (f := self._unsettled(link, each.delivery))]
        error: RedeliveryError | None = next(
            (e for _, held in found if (e := self.faults.for_forward(held.kept))), None
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
            # A second subscription would stay after the consumer's end.
            return
        consumer = MemoryConsumer(link, command.consumer, browses=command.browse)
        try:
            if (refusal := self.faults.for_consumer(command.destination)) is not None:
                raise refusal
            self.routes.join(consumer, command)
        except RedeliveryError as error:
            self._post(link, Subscribed(command.consumer, error))
            return
        link.consumers[command.consumer] = consumer
        self._post(link, Subscribed(command.consumer))

    def _show(self, consumer: MemoryConsumer, messages: int) -> None:
        """Show a browser up to `messages` more messages, and report the end of the queue."""
        after = consumer.shown
        waiting = [(s.number, s, queue) for queue in consumer.queues for s in queue if s.number > after]
        found = sorted(waiting, key=lambda one: one[0])[:messages]
        if found:
            consumer.shown = found[-1][0]
            shown = [
                MemoryDelivery(consumer.number, consumer.epoch, queue, stored) for _, stored, queue in found
            ]
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
        """End a consumer; its unsettled messages are on their queues again, with one delivery more."""
        for delivery in consumer.unsettled:
            found = consumer.unsettled[delivery]
            found.kept.count += 1
            self._note("returned", found.kept)
            self._put_back(found)
        consumer.unsettled = {}
        consumer.credit = 0
        self.routes.leave(consumer)

    def resume(self) -> None:
        """Pass on the stalled confirmations."""
        with Uninterrupted():
            with self.lock:
                stalled, self.faults.stalled = self.faults.stalled or [], None
                for link, event in stalled:
                    if link.open:
                        self._post(link, event)
                ringing = self._pump()
            drain(ringing)

    # Messages.

    def _refusal(self, message: Outgoing, *, faults: bool = True) -> RedeliveryError | None:
        """Store a message, or return why it is refused."""
        error = self.faults.for_send() if faults else None
        if error is not None:
            return error
        try:
            self._take(message)
        except RedeliveryError as refused:
            return refused
        return None

    def _take(self, message: Outgoing) -> StoredMessage:
        self._number += 1
        number = self._number
        if message.delay:
            # A wrong destination is refused here, not by the timer.
            self.routes.to(message.destination)
            self._delayed[number] = self.clock.call_later(message.delay, lambda: self._due(number, message))
            return self._stored(number, message)
        return self._enqueue(number, message)

    def _due(self, number: int, message: Outgoing) -> None:
        with self.lock:
            if self._delayed.pop(number, None) is None:
                return
            self._enqueue(number, message)
            ringing = self._pump()
        drain(ringing)

    def _reschedule(self, link: MemoryConnection, command: Reschedule) -> None:
        """Hold a message back until its due time, uncounted, with its notes."""
        found = self._settled(link, command.delivery)
        if found is None:
            return
        self._note("released", found.kept)
        found.kept.notes = dict(command.notes)
        self._number += 1
        number, delay = self._number, max(0.0, command.due - self.clock.time())
        self._delayed[number] = self.clock.call_later(delay, lambda: self._due_again(number, found))

    def _due_again(self, number: int, delivery: MemoryDelivery) -> None:
        with self.lock:
            if self._delayed.pop(number, None) is None:
                return
            self._put_back(delivery)
            ringing = self._pump()
        drain(ringing)

    def _stored(self, number: int, message: Outgoing) -> StoredMessage:
        return StoredMessage(f"{self._ids}{number}", number, message, self.clock.time())

    def _enqueue(self, number: int, message: Outgoing) -> StoredMessage:
        stored = self._stored(number, message)
        self._note("sent", stored)
        for turn, queue in enumerate(self.routes.to(message.destination)):
            # Each queue has its own object, because it has its own count.
            queue.put(stored if turn == 0 else self._stored(number, message))
            self._dirty[queue] = None
        return stored

    def _bury(self, stored: StoredMessage, command: PoisonAck) -> None:
        offset = self.clock.time() - self.clock.monotonic()
        letter = dead_letter(
            stored, DEAD_LETTERS, command.cause, command.count, command.delivery.record, offset
        )
        self._move(stored, letter)

    def _expired(self, stored: StoredMessage) -> None:
        self._note("expired", stored)
        self._move(stored, dead_letter(stored, DEAD_LETTERS, EXPIRED, stored.count))

    def _move(self, stored: StoredMessage, letter: Outgoing) -> None:
        """Put a dead letter on its queue; it keeps its id and its timestamp."""
        self._number += 1
        moved = StoredMessage(stored.broker_id, self._number, letter, stored.timestamp)
        for queue in self.routes.to(letter.destination):
            queue.put(moved)
            self._dirty[queue] = None

    def _put_back(self, delivery: MemoryDelivery) -> None:
        delivery.queue.put_back(delivery.kept)
        self._dirty[delivery.queue] = None

    # Events.

    def _note(self, action: str, stored: StoredMessage) -> None:
        self.steps.append((action, stored.message_id, stored.message.destination, self.clock.monotonic()))

    def _post(self, link: MemoryConnection, event: AdapterEvent, *, confirms: bool = False) -> None:
        if confirms and self.faults.stalled is not None:
            self.faults.stalled.append((link, event))
            return
        link.outbox.append(event)
        self._ringing[link] = None

    def _pump(self) -> list[MemoryConnection]:
        """Deliver messages to consumers with credit; return the connections with events in their outbox."""
        dirty = self._dirty
        now = self.clock.time() if dirty else 0.0
        while dirty:
            queue, _ = dirty.popitem()
            for consumer in queue.pump(now, self._expired):
                batch, consumer.batch = consumer.batch, []
                for delivery in batch:
                    self._note("delivered", delivery.kept)
                self._post(consumer.link, Arrived(consumer.number, batch))
        if not self._ringing:
            return []
        ringing = list(self._ringing)
        self._ringing.clear()
        return ringing

    # State that tests read.

    def held(self, address: str) -> Iterator[HeldMessage]:
        """Iterate over the messages of a queue or of a topic's subscriptions, oldest first. The caller has the lock."""
        found: list[tuple[int, HeldMessage]] = []
        for queue in self.routes.queues.values():
            if queue.address == address:
                found += [(stored.number, HeldMessage.of(stored)) for stored in queue]
                found += [
                    (delivery.kept.number, HeldMessage.of(delivery.kept, delivered=True))
                    for consumer in queue.consumers
                    for delivery in consumer.unsettled.values()
                    if delivery.queue is queue
                ]
        return (message for _, message in sorted(found, key=lambda pair: pair[0]))

    def key_of(self, message: Hashable) -> Hashable:
        """Return the key of the queued message with this id; the argument itself if there is none.

        The caller has the lock.
        """
        for queue in self.routes.queues.values():
            for stored in queue:
                if stored.message_id == message:
                    return stored.key_in(queue)
        return message

    def history(self) -> list[Step]:
        """Return the steps so far, oldest first. The caller has the lock."""
        return [Step(*step) for step in self.steps]

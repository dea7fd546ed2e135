"""What the broker holds: messages on queues, on their way to consumers, and the events that tell of it."""

from __future__ import annotations

import threading
import uuid
from collections import deque
from typing import TYPE_CHECKING

from redelivery.core.delivery import EXPIRED
from redelivery.core.events import Arrived
from redelivery.errors import RedeliveryError
from redelivery_memory.connection import drain
from redelivery_memory.faults import Faults
from redelivery_memory.messages import HeldMessage, Step, StoredMessage, dead_letter
from redelivery_memory.routes import Routes

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from redelivery.adapter import AdapterEvent
    from redelivery.clock import Cancel, Clock
    from redelivery.core.commands import PoisonAck
    from redelivery.core.outgoing import Outgoing
    from redelivery_memory.connection import MemoryConnection
    from redelivery_memory.messages import MemoryDelivery
    from redelivery_memory.queues import Queue

__all__ = ["DEAD_LETTERS", "MemoryState"]

DEAD_LETTERS = "queue://DLQ"
STEPS = 10_000  # remembered for tests: more than any of them looks at


class MemoryState:
    """The messages of one broker, which `MemoryServer` changes. Methods with an underscore need the lock."""

    def __init__(self, name: str, clock: Clock) -> None:
        self.name = name
        self.clock = clock
        self.lock = threading.Lock()
        self.faults = Faults()
        self.routes = Routes()
        self.links: dict[MemoryConnection, None] = {}
        self.steps: deque[tuple[str, str, str, float]] = deque(maxlen=STEPS)
        self._ids = f"ID:{name}-{uuid.uuid4().hex[:8]}-"  # no id may come again in another life of this name
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

    # Messages.

    def _refusal(self, message: Outgoing, *, faults: bool = True) -> RedeliveryError | None:
        """Take in a message, or say why not."""
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
            self.routes.to(message.destination)  # refuse it now, not in the timer
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

    def _stored(self, number: int, message: Outgoing) -> StoredMessage:
        return StoredMessage(f"{self._ids}{number}", number, message, self.clock.time())

    def _enqueue(self, number: int, message: Outgoing) -> StoredMessage:
        stored = self._stored(number, message)
        self._note("sent", stored)
        for turn, queue in enumerate(self.routes.to(message.destination)):
            queue.put(stored if turn == 0 else self._stored(number, message))  # each has a count of its own
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
        """Put a dead letter on its queue: it keeps its id and its time stamp."""
        self._number += 1
        moved = StoredMessage(stored.broker_id, self._number, letter, stored.timestamp)
        for queue in self.routes.to(letter.destination):
            queue.put(moved)
            self._dirty[queue] = None

    def _put_back(self, delivery: MemoryDelivery) -> None:
        delivery.queue.put_back(delivery.stored)
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
        """Deliver what can be delivered; return the connections that have something in their outbox."""
        dirty = self._dirty
        now = self.clock.time() if dirty else 0.0
        while dirty:
            queue, _ = dirty.popitem()
            for consumer in queue.pump(now, self._expired):
                batch, consumer.batch = consumer.batch, []
                for delivery in batch:
                    self._note("delivered", delivery.stored)
                self._post(consumer.link, Arrived(consumer.number, batch))
        if not self._ringing:
            return []
        ringing = list(self._ringing)
        self._ringing.clear()
        return ringing

    # What tests look at.

    def held(self, address: str) -> Iterator[HeldMessage]:
        """Go through what is held for a queue, or a topic's subscriptions, oldest first. Needs the lock."""
        found: list[tuple[int, HeldMessage]] = []
        for queue in self.routes.queues.values():
            if queue.address == address:
                found += [(stored.number, HeldMessage.of(stored)) for stored in queue]
                found += [
                    (delivery.stored.number, HeldMessage.of(delivery.stored, delivered=True))
                    for consumer in queue.consumers
                    for delivery in consumer.unsettled.values()
                    if delivery.queue is queue
                ]
        return (message for _, message in sorted(found, key=lambda pair: pair[0]))

    def key_of(self, message: Hashable) -> Hashable:
        """Return the key of a message that waits in a queue, if this is its id; else what was given. Needs the lock."""
        for queue in self.routes.queues.values():
            for stored in queue:
                if stored.message_id == message:
                    return stored.key_in(queue)
        return message

    def history(self) -> list[Step]:
        """Return the steps so far. Needs the lock."""
        return [Step(*step) for step in self.steps]

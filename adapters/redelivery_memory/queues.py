"""Queue of the memory broker: distributes messages to its consumers."""

from __future__ import annotations

from collections import OrderedDict, deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from redelivery.core.destination import Destination
from redelivery.core.policy.wildcards import ClassicPatterns
from redelivery.errors import AdapterError
from redelivery_memory.messages import MemoryDelivery

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from redelivery.core.commands import Subscribe
    from redelivery_memory.messages import StoredMessage
    from redelivery_memory.server import MemoryConsumer

__all__ = ["Queue", "Routes"]


# ---- Queues ----------------------------------------------------------------------------------------------


class Queue:
    """First in, first out; consumers with credit take turns. Returned messages go to the front, in order."""

    def __init__(self, name: str, address: str, *, temporary: bool = False) -> None:
        self.name = name  # unique in the broker
        # Destination: a topic has one queue per subscription.
        self.address = address
        # True: the subscription ends with its consumer.
        self.temporary = temporary
        self.consumers: set[MemoryConsumer] = set()
        self._fresh: deque[StoredMessage] = deque()
        self._returned: list[tuple[int, StoredMessage]] = []
        self._hungry: OrderedDict[MemoryConsumer, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._fresh) + len(self._returned)

    def __iter__(self) -> Iterator[StoredMessage]:
        """Iterate over the queued messages, in order."""
        for _, stored in sorted(self._returned):
            yield stored
        yield from self._fresh

    def put(self, stored: StoredMessage) -> None:
        """Add a new message."""
        self._fresh.append(stored)

    def put_back(self, stored: StoredMessage) -> None:
        """Take back a message that was delivered."""
        heappush(self._returned, (stored.number, stored))

    def hungry(self, consumer: MemoryConsumer) -> None:
        """Note that a consumer has credit."""
        self._hungry[consumer] = None

    def leave(self, consumer: MemoryConsumer) -> None:
        """Remove a consumer."""
        self.consumers.discard(consumer)
        self._hungry.pop(consumer, None)

    def pump(self, now: float, expired: Callable[[StoredMessage], None]) -> Iterator[MemoryConsumer]:
        """Deliver messages to consumers with credit; return the consumers that got some.

        Args:
            now: Wall-clock time; messages that expired before are not delivered.
            expired: Called with each expired message.
        """
        hungry, returned, fresh = self._hungry, self._returned, self._fresh
        touched: dict[MemoryConsumer, None] = {}
        while hungry and (returned or fresh):
            consumer = next(iter(hungry))
            # The credit was used up by another queue of the consumer's wildcard.
            if consumer.credit <= 0:
                del hungry[consumer]
                continue
            stored = heappop(returned)[1] if returned else fresh.popleft()
            expires = stored.message.expires_at
            if expires is not None and expires <= now:
                expired(stored)
                continue
            delivery = MemoryDelivery(consumer.number, consumer.epoch, self, stored)
            consumer.unsettled[delivery] = delivery
            consumer.batch.append(delivery)
            touched[consumer] = None
            consumer.credit -= 1
            if not consumer.credit:
                del hungry[consumer]
            elif len(hungry) > 1:
                hungry.move_to_end(consumer)
        return iter(touched)


# ---- Routes ----------------------------------------------------------------------------------------------
# Routing of the memory broker: from destinations to queues, and from queues to subscriptions.


def _has_wildcard(destination: Destination) -> bool:
    tokens = destination.name.split(".")
    return destination.kind != "native" and (tokens[-1] == ">" or "*" in tokens)


def _plain(destination: Destination) -> Destination:
    """Return the destination without its `?options`: this broker has none."""
    return Destination(destination.kind, destination.name) if destination.options else destination


class _Subscription:
    """Topic subscription: its pattern, and the queue that collects its messages."""

    def __init__(self, destination: Destination, queue: Queue) -> None:
        self.destination = destination
        self.queue = queue
        self.patterns = ClassicPatterns([destination])


class Routes:
    """Queues by name, created on demand; subscriptions to topics; wildcards over queues."""

    def __init__(self) -> None:
        self.queues: dict[str, Queue] = {}
        self._subscriptions: dict[str, _Subscription] = {}
        self._wild: dict[MemoryConsumer, ClassicPatterns] = {}
        self._known: dict[str, tuple[Queue, ...]] = {}

    def to(self, address: str) -> tuple[Queue, ...]:
        """Return the queues that a message to `address` goes to: for a topic, one per subscription.

        Raises:
            AdapterError: The address is a wildcard.
            ConfigurationError: The address cannot be parsed.
        """
        known = self._known.get(address)
        if known is not None:
            return known
        found: dict[Queue, None] = {}
        for member in _plain(Destination.parse(address)).members:
            if _has_wildcard(member):
                raise AdapterError(f"memory:// cannot send to a wildcard: {address}")
            if member.is_topic:
                matching = (
                    s.queue for s in self._subscriptions.values() if s.patterns.find(member) is not None
                )
                found.update(dict.fromkeys(matching))
            else:
                found[self.queue(member)] = None
        # A limit, because temporary destinations always have new names.
        if len(self._known) >= 4096:
            self._known.clear()
        self._known[address] = tuple(found)
        return self._known[address]

    def queue(self, destination: Destination) -> Queue:
        """Return the queue of that name; create it if there is none."""
        name = str(_plain(destination))
        queue = self.queues.get(name)
        if queue is None:
            queue = self.queues[name] = Queue(name, name)
            for consumer, patterns in self._wild.items():
                if patterns.find(destination) is not None:
                    self._attach(consumer, queue)
        return queue

    def join(self, consumer: MemoryConsumer, command: Subscribe) -> None:
        """Connect the consumer to its queues.

        Raises:
            AdapterError: The broker does not support the subscription, or the durable subscription is in use.
            ConfigurationError: The destination cannot be parsed.
        """
        if command.selector is not None:
            raise AdapterError(f"selector {command.selector!r}: memory:// has no selectors; remove it")
        destination = _plain(Destination.parse(command.destination))
        kinds = {member.is_topic for member in destination.members}
        if len(kinds) > 1:
            raise AdapterError(
                f"memory:// cannot consume queues and topics at once: {destination}; use two consumers"
            )
        if destination.is_topic or kinds == {True}:
            self._attach(consumer, self._subscribe(consumer, destination, command.subscription))
            return
        if command.subscription is not None:
            raise AdapterError(f"a durable subscription needs a topic, not {destination}")
        for member in destination.members:
            if not _has_wildcard(member):
                self._attach(consumer, self.queue(member))
        if any(_has_wildcard(member) for member in destination.members):
            patterns = self._wild[consumer] = ClassicPatterns([destination])
            for name, queue in self.queues.items():
                if queue.address == name and patterns.find(Destination.parse(name)) is not None:
                    self._attach(consumer, queue)

    def leave(self, consumer: MemoryConsumer) -> None:
        """Disconnect the consumer from its queues; its temporary queues end."""
        self._wild.pop(consumer, None)
        for queue in consumer.queues:
            queue.leave(consumer)
            if queue.temporary:
                self._end(queue.name)
        consumer.queues = []

    def _attach(self, consumer: MemoryConsumer, queue: Queue) -> None:
        if queue not in consumer.queues:
            consumer.queues.append(queue)
            queue.consumers.add(consumer)
            # A browser never has credit.
            if consumer.credit > 0:
                queue.hungry(consumer)

    def _subscribe(
        self, consumer: MemoryConsumer, destination: Destination, subscription: str | None
    ) -> Queue:
        if subscription is None:
            name = f"{destination}#{consumer.epoch}.{consumer.number}.{id(consumer):x}"
        else:
            client_id = consumer.link.client_id
            if client_id is None:
                raise AdapterError(
                    f"the durable subscription {subscription!r} needs a client id; set jms.clientID in the URI"
                )
            name = f"{client_id}:{subscription}"
            old = self._subscriptions.get(name)
            if old is not None and old.queue.consumers:
                raise AdapterError(
                    f"the durable subscription {subscription!r} of {client_id!r} is in use; close its consumer first"
                )
            if old is not None and old.destination == destination:
                return old.queue
            # As in JMS: a different topic makes it a different subscription, and the old one ends.
            if old is not None:
                self._end(name)
        queue = self.queues[name] = Queue(name, str(destination), temporary=subscription is None)
        self._subscriptions[name] = _Subscription(destination, queue)
        self._known.clear()
        return queue

    def _end(self, name: str) -> None:
        del self.queues[name], self._subscriptions[name]
        self._known.clear()

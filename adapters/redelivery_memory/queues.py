"""Queue of the memory broker: distributes messages to its consumers."""

from __future__ import annotations

from collections import OrderedDict, deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from redelivery_memory.messages import MemoryDelivery

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from redelivery_memory.connection import MemoryConsumer
    from redelivery_memory.messages import StoredMessage

__all__ = ["Queue"]


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

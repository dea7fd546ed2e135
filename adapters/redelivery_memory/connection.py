"""Broker's end of a connection: its consumers, and the outbox of its events."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from redelivery.clock import capped

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from redelivery.adapter import AdapterEvent, Sink
    from redelivery.core.delivery import Delivery
    from redelivery_memory.messages import MemoryDelivery
    from redelivery_memory.queues import Queue

__all__ = ["MemoryConnection", "MemoryConsumer", "drain"]


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

"""The broker's end of a connection: its consumers, and the events on their way to it."""

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
    """One subscription of one connection. All of it is guarded by the broker's lock."""

    __slots__ = (
        "batch", "browses", "credit", "epoch", "link", "matches", "number", "queues", "shown", "unsettled",
    )  # fmt: skip

    def __init__(self, link: MemoryConnection, number: int, *, browses: bool = False) -> None:
        self.browses = browses
        # The last message that it was shown.
        self.shown = 0
        self.link = link
        self.number = number
        self.epoch = link.epoch
        self.credit = 0
        self.queues: list[Queue] = []
        self.unsettled: dict[Delivery, MemoryDelivery] = {}
        # Delivered, to be told in one event.
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
        """Return the key of a message (known by it, or by its id), and who has it here. Needs the broker's lock."""
        for consumer in self.consumers.values():
            for delivery in consumer.unsettled.values():
                if message in (delivery.key, delivery.message_id):
                    return delivery.key, consumer.number
        return None

    def drain(self) -> None:
        """Hand over what is in the outbox, in order, unless another thread does: that one looks again."""
        outbox = self.outbox
        while outbox:
            if not self._draining.acquire(blocking=False):
                return
            self._drainer = threading.get_ident()
            try:
                while outbox:
                    try:
                        event = outbox.popleft()
                    except IndexError:  # cut or closed meanwhile
                        break
                    self._sink(event)
            finally:
                self._drainer = None
                self._draining.release()

    def settle(self, timeout: float) -> None:
        """Wait until no other thread is inside the sink, so that no event comes later."""
        if self._drainer != threading.get_ident() and self._draining.acquire(
            timeout=capped(max(0.0, timeout))
        ):
            self._draining.release()


class _Turn(threading.local):
    """What this thread has still to drain."""

    def __init__(self) -> None:
        self.links: deque[MemoryConnection] | None = None


_turn = _Turn()


def drain(links: Iterable[MemoryConnection]) -> None:
    """Hand over what the links have.

    Called inside a sink it only leaves the links to the outer call: a chain of consumers that send to each
    other must not become a chain of stack frames, nor of locks.
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

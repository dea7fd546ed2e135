"""Message histories of a connection: one for each source, shared by the consumers of that source.

The history of a message lasts as long as the connection, whichever consumer gets the message next.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Literal

from redelivery.core.message_history import RECALL, MessageHistory

if TYPE_CHECKING:
    from redelivery.core.commands import Subscribe

__all__ = ["SharedHistory", "Source", "scope_of", "source_of"]

Source = tuple[str, str | None]
"""Source of messages: a destination, and the name of a durable subscription or None."""

Scope = Literal["all", "later", "none"]


def source_of(subscribe: Subscribe) -> Source:
    """Return the source of a consumer's messages."""
    return subscribe.destination, subscribe.subscription


def scope_of(subscribe: Subscribe) -> Scope:
    """Return which consumers of the same source may receive a message that this one has received.

    `all`: the source is a queue, or a durable subscription. `none`: each consumer of a plain topic has copies of its
    own, and the broker redelivers none. `later`: a native address may be a queue or a topic. Only a consumer that is
    made after this one can have had no copy of its own.
    """
    kind = subscribe.destination.partition("://")[0]
    if kind in ("queue", "temp-queue") or subscribe.subscription is not None:
        return "all"
    return "later" if kind == "native" else "none"


class SharedHistory:
    """Histories of open consumers, and those that closed ones left: bounded, the oldest source is dropped first."""

    def __init__(self, *, unique_ids: bool = False) -> None:
        self._unique_ids = unique_ids
        self._lock = threading.Lock()
        # Each with the number of its consumers.
        self._open: dict[Source, tuple[MessageHistory, int]] = {}
        # Each with its size when its last consumer closed. There may be thousands: a sum of sizes is kept, too.
        self._left: dict[Source, tuple[MessageHistory, int]] = {}
        self._size = 0

    def opened(self, subscribe: Subscribe) -> MessageHistory:
        """Return the history for a new consumer."""
        source, scope = source_of(subscribe), scope_of(subscribe)
        with self._lock:
            if scope == "all":
                history, consumers = self._open.get(source) or (self._kept(source), 0)
                self._open[source] = history, consumers + 1
            else:
                history = self._kept(source) if scope == "later" else self._made()
        history.widen(max(subscribe.window, subscribe.most) + subscribe.room)
        return history

    def closed(self, subscribe: Subscribe, history: MessageHistory) -> None:
        """Keep the history of a consumer that has closed."""
        source, scope = source_of(subscribe), scope_of(subscribe)
        history.widen(-max(subscribe.window, subscribe.most) - subscribe.room)
        with self._lock:
            if scope == "all":
                _, consumers = self._open[source]
                if consumers > 1:
                    self._open[source] = history, consumers - 1
                    return
                del self._open[source]
            elif scope == "none":
                return
            if (before := self._part_with(source)) is not None:
                history.absorb(before)
            if not len(history):
                return
            history.left()
            self._left[source] = history, len(history)
            self._size += len(history)
            while self._size > RECALL and len(self._left) > 1:
                self._part_with(next(iter(self._left)))

    def unaccounted(self, now: float) -> int:
        """Return how many messages, held at a loss, have not come back since: `MessageHistory.unaccounted`."""
        with self._lock:
            histories = [history for history, _ in (*self._left.values(), *self._open.values())]
        return sum(history.unaccounted(now) for history in histories)

    def served(self, subscribe: Subscribe, now: float) -> None:
        """Note that the broker has confirmed a consumer."""
        with self._lock:
            history, _ = self._open.get(source_of(subscribe)) or (None, 0)
        if history is not None:
            history.served(now)

    def connection_lost(self, now: float, epoch: int, age: float) -> None:
        """Record in all histories that the connection was lost at `now`.

        The engines of open consumers do that for their histories, too. Those of closed consumers, and of consumers that
        are about to close, have no engine that hears of the loss.
        """
        with self._lock:
            histories = [history for history, _ in (*self._left.values(), *self._open.values())]
        for history in histories:
            history.lost(now, epoch, age)

    def _kept(self, source: Source) -> MessageHistory:
        """Return the history that closed consumers of a source left, or a new one."""
        left = self._part_with(source)
        return self._made() if left is None else left

    def _part_with(self, source: Source) -> MessageHistory | None:
        """Remove and return the history that closed consumers of a source left; with the lock."""
        history, size = self._left.pop(source, (None, 0))
        self._size -= size
        return history

    def _made(self) -> MessageHistory:
        return MessageHistory(unique_ids=self._unique_ids, lock=threading.Lock())

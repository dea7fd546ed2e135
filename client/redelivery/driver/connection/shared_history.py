"""The histories of a connection: one for each source, shared by the consumers of it.

So what is known of a message lasts as long as the connection, whichever consumer gets it next.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Literal

from redelivery.core.message_history import RECALL, MessageHistory

if TYPE_CHECKING:
    from redelivery.core.commands import Subscribe

__all__ = ["SharedHistory", "Source", "scope_of", "source_of"]

Source = tuple[str, str | None]
"""Where messages come from: a destination, and the name of a durable subscription."""

Scope = Literal["all", "later", "none"]


def source_of(subscribe: Subscribe) -> Source:
    """Return what a consumer's messages come from."""
    return subscribe.destination, subscribe.subscription


def scope_of(subscribe: Subscribe) -> Scope:
    """Tell which consumers of the same source may receive the very message that this one had.

    `all`: it is a queue, or a durable subscription. `none`: each consumer of a plain topic has copies of its own, and
    nothing of it comes again. `later`: a native address may be either, so only a consumer that is made afterwards
    cannot have had a copy of its own.
    """
    kind = subscribe.destination.partition("://")[0]
    if kind in ("queue", "temp-queue") or subscribe.subscription is not None:
        return "all"
    return "later" if kind == "native" else "none"


class SharedHistory:
    """Gives each consumer its history, and keeps what closed ones have left: bounded, the oldest source goes first."""

    def __init__(self, *, unique_ids: bool = False) -> None:
        self._unique_ids = unique_ids
        self._lock = threading.Lock()
        # With the number of their consumers.
        self._open: dict[Source, tuple[MessageHistory, int]] = {}
        # With what each had when it was left; and of all: there may be thousands, and one is left with each consumer.
        self._left: dict[Source, tuple[MessageHistory, int]] = {}
        self._size = 0

    def opened(self, subscribe: Subscribe) -> MessageHistory:
        """Return the history of a consumer that begins."""
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
        """Take what a consumer leaves that has closed."""
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

    def connection_lost(self, now: float, epoch: int, age: float) -> None:
        """Learn that the connection is lost at `now`: nothing else tells what closed consumers have left.

        Nor the history of a consumer that is about to close: its engine has parted with the connection already.
        """
        with self._lock:
            histories = [history for history, _ in (*self._left.values(), *self._open.values())]
        for history in histories:
            history.lost(now, epoch, age)

    def _kept(self, source: Source) -> MessageHistory:
        """Return what was left of a source, or a new history."""
        left = self._part_with(source)
        return self._made() if left is None else left

    def _part_with(self, source: Source) -> MessageHistory | None:
        """Keep what was left of a source no longer; with the lock."""
        history, size = self._left.pop(source, (None, 0))
        self._size -= size
        return history

    def _made(self) -> MessageHistory:
        return MessageHistory(unique_ids=self._unique_ids, lock=threading.Lock())

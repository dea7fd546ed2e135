"""What is known of messages that no consumer of the connection has: counts, due times, verdicts.

A consumer that closes, gives a message back or loses the connection leaves its records here; the consumer that
receives the message takes its record. So a count lasts as long as the connection, whoever gets the message next.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Literal

from redelivery.core.message_history import RECALL

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from redelivery.core.commands import Subscribe
    from redelivery.core.delivery import Record

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
    """Records by source and message. Bounded: confirmed verdicts go first, then the oldest."""

    def __init__(self) -> None:
        self.sources: dict[Source, dict[Hashable, Record]] = {}
        """Read without the lock: whether there is anything at all. So what stays is never taken out for a moment."""
        self._lock = threading.Lock()
        self._windows = 0  # of the consumers that are open
        self._bound = RECALL
        self._verdicts: dict[
            tuple[Source, Hashable], None
        ] = {}  # of dead letters that are safe, oldest first
        self._others: dict[tuple[Source, Hashable], None] = {}

    def opened(self, window: int) -> None:
        """Make room for what one more consumer may have unsettled when the connection is lost."""
        with self._lock:
            self._windows += window
            self._bound = max(self._bound, RECALL + self._windows)

    def closed(self, window: int) -> None:
        """Learn that a consumer has closed; what it has left stays."""
        with self._lock:
            self._windows -= window

    def leave(self, source: Source, records: dict[Hashable, Record]) -> None:
        """Keep records for whoever receives their messages."""
        if not records:
            return
        with self._lock:
            left = self.sources.setdefault(source, {})
            for key, record in records.items():
                # Of a consumer that had the message at another time, unseen by this one.
                other = left.get(key)
                kept = record if other is None or _weight(record) >= _weight(other) else other
                left[key] = kept
                self._forget(source, key)
                (self._verdicts if kept.confirmed else self._others)[source, key] = None
            while len(self._verdicts) + len(self._others) > self._bound:
                self._drop(*next(iter(self._verdicts or self._others)))

    def claim(self, source: Source, keys: Iterable[Hashable | None] | None = None) -> dict[Hashable, Record]:
        """Take the records of these messages, or all of a source."""
        with self._lock:
            left = self.sources.get(source)
            if left is None:
                return {}
            wanted = list(left) if keys is None else keys
            found = {key: left[key] for key in wanted if key is not None and key in left}
            for key in found:
                self._drop(source, key)
            return found

    def _drop(self, source: Source, key: Hashable) -> None:
        self._forget(source, key)
        left = self.sources[source]
        del left[key]
        if not left:
            del self.sources[source]

    def _forget(self, source: Source, key: Hashable) -> None:
        self._verdicts.pop((source, key), None)
        self._others.pop((source, key), None)


def _weight(record: Record) -> tuple[bool, int]:
    return record.poisoned, record.count

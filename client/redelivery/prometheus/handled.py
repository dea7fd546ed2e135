"""Durations of handlers, by destination and type of error, counted by each thread for itself.

`x += 1` is not atomic, and a lock takes 0.15 µs a message. Each thread has its own counts, which no other
thread writes: no count is lost. The lock is held only to make new series, and to add all up.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING
from weakref import ref

from redelivery.prometheus.histogram import DURATIONS, Buckets

if TYPE_CHECKING:
    from redelivery.prometheus.label_values import LabelValues

__all__ = ["HandledMessages", "OneThread", "Series"]

Series = tuple[str, str]
"""Label values: destination, and type of error, which is empty for a message that did not fail."""


class OneThread:
    """Counts of one thread. The object ends with its thread; `rows` stay."""

    __slots__ = ("__weakref__", "rows", "succeeded")

    def __init__(self) -> None:
        self.rows: dict[Series, Buckets] = {}
        self.succeeded: dict[str, Buckets] = {}
        """Counts of messages that did not fail, by the consumer's destination: looked up for each message."""


class OfThisThread(threading.local):
    """Reference from a thread to its own counts."""

    mine: OneThread | None = None


class HandledMessages:
    """Durations of all threads."""

    def __init__(self, lock: threading.RLock, destinations: LabelValues, errors: LabelValues) -> None:
        self.local = OfThisThread()
        self._lock = lock
        self._destinations = destinations
        self._errors = errors
        self._ended: dict[Series, Buckets] = {}
        self._threads: list[tuple[ref[OneThread], dict[Series, Buckets]]] = []

    def buckets(self, destination: str, error_type: str) -> Buckets:
        """Return this thread's counts of a series."""
        with self._lock:
            mine = self.local.mine or self._begin()
            series = self._destinations.of(destination), self._errors.of(error_type) if error_type else ""
            found = mine.rows.get(series)
            if found is None:
                found = mine.rows[series] = Buckets(DURATIONS)
            if not error_type and self._destinations.known(destination):
                mine.succeeded[destination] = found
            return found

    def _begin(self) -> OneThread:
        """Start the counts of a thread, and add up those of ended threads."""
        self._add_up_ended()
        mine = self.local.mine = OneThread()
        self._threads.append((ref(mine), mine.rows))
        return mine

    def _add_up_ended(self) -> None:
        alive: list[tuple[ref[OneThread], dict[Series, Buckets]]] = []
        for thread, rows in self._threads:
            if thread() is None:
                _add(self._ended, rows)
            else:
                alive.append((thread, rows))
        self._threads = alive

    def totals(self) -> dict[Series, Buckets]:
        """Add up the counts of all threads."""
        with self._lock:
            self._add_up_ended()
            found: dict[Series, Buckets] = {}
            for rows in (self._ended, *(rows for _, rows in self._threads)):
                _add(found, rows)
            return found


def _add(to: dict[Series, Buckets], rows: dict[Series, Buckets]) -> None:
    for series, buckets in rows.items():
        to.setdefault(series, Buckets(buckets.bounds)).add(buckets)

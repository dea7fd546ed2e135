"""Counts of all consumers that a connection ever had, by their destinations.

It outlives the connection, and keeps no consumer alive: what shows counts may keep it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import ref

from redelivery.core.report import Counters, Report

if TYPE_CHECKING:
    from redelivery.driver.consumer.dispatcher import Dispatcher

__all__ = ["MOST_DESTINATIONS", "OTHER", "DestinationCounts"]

# Destinations of ended consumers that are kept apart: a program may have a reply queue for each request.
MOST_DESTINATIONS = 1000
OTHER = "other"


@dataclass(slots=True)
class CountedConsumer:
    """The counts of one consumer, which may change."""

    destination: str
    counts: Counters
    dispatcher: ref[Dispatcher]
    retired: bool = False

    @property
    def final(self) -> bool:
        """Whether no result can come: nothing runs, or no thread has the consumer."""
        alive = self.dispatcher()
        return alive is None or (self.retired and not alive.engine.load.running)


class DestinationCounts:
    """Adds up the counts of consumers that have ended. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended: dict[str, Counters] = {}
        self._consumers: list[CountedConsumer] = []

    def add(self, dispatcher: Dispatcher) -> None:
        """Take in a new consumer."""
        with self._lock:
            counted = CountedConsumer(
                dispatcher.subscribe.destination, dispatcher.engine.counts, ref(dispatcher)
            )
            self._consumers.append(counted)

    def retire(self, dispatcher: Dispatcher) -> None:
        """Take in that a consumer has ended; the application may still have messages of it."""
        with self._lock:
            for each in self._consumers:
                if each.dispatcher() is dispatcher:
                    each.retired = True
            self._fold()

    def all(self) -> list[Counters]:
        """Return all counts; those of ended consumers are summed up."""
        with self._lock:
            self._fold()
            return [*self._ended.values(), *(each.counts for each in self._consumers)]

    def reports(self) -> dict[str, Report]:
        """Return what has become of dispatches so far, by the destinations of the consumers.

        Past 1000 destinations, those of ended consumers are together in `other`.
        """
        with self._lock:
            self._fold()
            found = {destination: [counts] for destination, counts in self._ended.items()}
            for each in self._consumers:
                found.setdefault(each.destination, []).append(each.counts)
            return {destination: Report.of(counts) for destination, counts in found.items()}

    @property
    def final(self) -> bool:
        """Whether no count can change, unless there are new consumers."""
        with self._lock:
            self._fold()
            return not self._consumers

    def _fold(self) -> None:
        """Sum up what is final."""
        found, self._consumers = self._consumers, []
        for each in found:
            if each.final:
                self._ended_of(each.destination).add(each.counts)
            else:
                self._consumers.append(each)

    def _ended_of(self, destination: str) -> Counters:
        if destination not in self._ended and len(self._ended) >= MOST_DESTINATIONS:
            destination = OTHER
        return self._ended.setdefault(destination, Counters())

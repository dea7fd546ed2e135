"""Open consumers of a connection, and the counters of all consumers that it has ever had."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import ref

from redelivery.core.dead_lettering.circles import Circling, refuse_circle
from redelivery.core.dead_lettering.routing import DeadLetterRouting
from redelivery.core.report import Counters, Report

if TYPE_CHECKING:
    from redelivery.core.capabilities import Capabilities
    from redelivery.driver.consumer.dispatcher import Dispatcher

__all__ = ["OpenConsumers"]


# ---- Destination counts ----------------------------------------------------------------------------------
# Counters of all consumers that a connection has ever had, by destination.
#
# They outlive the connection, and keep no consumer alive: an observer may keep them.

# Destinations of ended consumers with counters of their own. A limit, because a program may have a reply queue for each
# request.
MOST_DESTINATIONS = 1000
OTHER = "other"


@dataclass(slots=True)
class CountedConsumer:
    """Counters of one consumer; they may still change."""

    destination: str
    counts: Counters
    dispatcher: ref[Dispatcher]
    retired: bool = False

    @property
    def final(self) -> bool:
        """True if no more result can arrive: nothing runs, or no thread has the consumer."""
        alive = self.dispatcher()
        return alive is None or (self.retired and not alive.engine.load.running)


class DestinationCounts:
    """Counters by destination; those of ended consumers are added up. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended: dict[str, Counters] = {}
        self._consumers: list[CountedConsumer] = []

    def add(self, dispatcher: Dispatcher) -> None:
        """Add a new consumer."""
        with self._lock:
            counted = CountedConsumer(
                dispatcher.subscribe.destination, dispatcher.engine.state.counts, ref(dispatcher)
            )
            self._consumers.append(counted)

    def retire(self, dispatcher: Dispatcher) -> None:
        """Mark a consumer as ended; the application may still have messages of it."""
        with self._lock:
            for each in self._consumers:
                if each.dispatcher() is dispatcher:
                    each.retired = True
            self._fold()

    def all(self) -> list[Counters]:
        """Return all counters; those of ended consumers are added up."""
        with self._lock:
            self._fold()
            return [*self._ended.values(), *(each.counts for each in self._consumers)]

    def reports(self) -> dict[str, Report]:
        """Return the totals by destination: how dispatches have ended so far.

        Past 1,000 destinations of ended consumers, the rest is added up as `other`.
        """
        with self._lock:
            self._fold()
            found = {destination: [counts] for destination, counts in self._ended.items()}
            for each in self._consumers:
                found.setdefault(each.destination, []).append(each.counts)
            return {destination: Report.of(counts) for destination, counts in found.items()}

    @property
    def final(self) -> bool:
        """True if no counter can change, unless there are new consumers."""
        with self._lock:
            self._fold()
            return not self._consumers

    def _fold(self) -> None:
        """Add up the counters that are final."""
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


# ---- Open consumers --------------------------------------------------------------------------------------


class OpenConsumers:
    """Dispatchers while their consumers are open, and their counters for ever."""

    def __init__(self) -> None:
        self.dispatchers: list[Dispatcher] = []
        """Dispatchers of open consumers; always the same list."""
        self.counts = DestinationCounts()
        """Counters of all consumers, closed ones too; it keeps no dispatcher alive."""
        self._lock = threading.Lock()

    def add(self, dispatcher: Dispatcher, able: Capabilities | None) -> None:
        """Add the dispatcher of a new consumer. `able`: of the broker.

        Raises ConfigurationError if its dead letters come back by way of other consumers.
        """
        with self._lock:
            self._refuse_circle(_circling(dispatcher, able, told=False), able)
            self.dispatchers.append(dispatcher)
            self.counts.add(dispatcher)

    def refuse_circle(self, dispatcher: Dispatcher, able: Capabilities) -> None:
        """Look again, now that the adapter has found the broker's own place of a consumer's dead letters.

        Raises ConfigurationError as `add`.
        """
        with self._lock:
            self._refuse_circle(_circling(dispatcher, able, told=True), able)

    def _refuse_circle(self, new: Circling | None, able: Capabilities | None) -> None:
        if new is None:
            return
        others = [
            found
            for each in self.dispatchers
            if (found := _circling(each, each.engine.state.capabilities or able, told=True)) is not None
            and found.route is not new.route
        ]
        refuse_circle(new, others)

    def retire(self, dispatcher: Dispatcher) -> None:
        """Remove a dispatcher whose consumer has ended."""
        with self._lock:
            if dispatcher in self.dispatchers:
                self.dispatchers.remove(dispatcher)
                self.counts.retire(dispatcher)

    def report(self) -> Report:
        """Return the totals of the connection."""
        with self._lock:
            loads = [dispatcher.engine.load for dispatcher in self.dispatchers]
            running = sum(load.running for load in loads)
            return Report.of(self.counts.all(), running, sum(load.unconfirmed for load in loads))


def _circling(dispatcher: Dispatcher, able: Capabilities | None, *, told: bool) -> Circling | None:
    """Return a consumer as a part of circles; None: dead letters that it moves are no new ones."""
    route = dispatcher.engine.dead_letters
    if able is None or not isinstance(route, DeadLetterRouting):
        return None
    return Circling(route, able, told)

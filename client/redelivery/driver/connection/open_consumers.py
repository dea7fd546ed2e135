"""The consumers of a connection that are open, and the counts of all there ever were."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING
from weakref import ref

from redelivery.core.report import Counters, Report

if TYPE_CHECKING:
    from redelivery.driver.consumer.dispatcher import Dispatcher

__all__ = ["OpenConsumers"]


class OpenConsumers:
    """Keeps a dispatcher while its consumer is open, and its counts for ever."""

    def __init__(self) -> None:
        self.dispatchers: list[Dispatcher] = []
        """Those that are open; always the same list."""
        self._lock = threading.Lock()
        self._closed = Counters()
        self._late: list[
            tuple[ref[Dispatcher], Counters]
            # Closed, but the application still has messages of it.
        ] = []

    def add(self, dispatcher: Dispatcher) -> None:
        """Take in the dispatcher of a new consumer."""
        with self._lock:
            self.dispatchers.append(dispatcher)

    def retire(self, dispatcher: Dispatcher) -> None:
        """Let go of a dispatcher whose consumer has ended."""
        with self._lock:
            if dispatcher in self.dispatchers:
                self.dispatchers.remove(dispatcher)
                self._late.append((ref(dispatcher), dispatcher.engine.counts))
                self._fold()

    def report(self) -> Report:
        """Sum up."""
        with self._lock:
            self._fold()
            engines = [dispatcher.engine for dispatcher in self.dispatchers]
            counts = [self._closed, *(late for _, late in self._late), *(engine.counts for engine in engines)]
            running = sum(engine.load.running for engine in engines)
            return Report.of(counts, running, sum(engine.load.unconfirmed for engine in engines))

    def _fold(self) -> None:
        """Add up what no result can come for any more: nothing runs, or nobody is left who could report it."""
        late, self._late = self._late, []
        for dispatcher, counts in late:
            alive = dispatcher()
            if alive is not None and alive.engine.load.running:
                self._late.append((dispatcher, counts))
            else:
                self._closed.add(counts)

"""The consumers of a connection that are open, and the counts of all there ever were."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING
from weakref import ref

from redelivery.core.report import Counts, Report

if TYPE_CHECKING:
    from redelivery.driver.consumer.dispatcher import Channel

__all__ = ["Totals"]


class Totals:
    """Keeps a channel while its consumer is open, and its counts for ever."""

    def __init__(self) -> None:
        self.channels: list[Channel] = []
        """Those that are open; always the same list."""
        self._lock = threading.Lock()
        self._closed = Counts()
        self._late: list[
            tuple[ref[Channel], Counts]
        ] = []  # closed, but the application still has messages of it

    def add(self, channel: Channel) -> None:
        """Take in the channel of a new consumer."""
        with self._lock:
            self.channels.append(channel)

    def retire(self, channel: Channel) -> None:
        """Let go of a channel whose consumer has ended."""
        with self._lock:
            if channel in self.channels:
                self.channels.remove(channel)
                self._late.append((ref(channel), channel.engine.counts))
                self._fold()

    def report(self) -> Report:
        """Sum up."""
        with self._lock:
            self._fold()
            engines = [channel.engine for channel in self.channels]
            counts = [self._closed, *(late for _, late in self._late), *(engine.counts for engine in engines)]
            running = sum(engine.running for engine in engines)
            return Report.of(counts, running, sum(engine.unconfirmed for engine in engines))

    def _fold(self) -> None:
        """Add up what no result can come for any more: nothing runs, or nobody is left who could report it."""
        late, self._late = self._late, []
        for channel, counts in late:
            alive = channel()
            if alive is not None and alive.engine.running:
                self._late.append((channel, counts))
            else:
                self._closed.add(counts)

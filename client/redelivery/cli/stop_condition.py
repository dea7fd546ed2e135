"""When `consume` has done what it was asked for: so many messages, or nothing for so long."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from redelivery.errors import ConfigurationError
from redelivery.events import Finished, Started
from redelivery.handler_exceptions import Defer

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery.core.delivery import Delivery
    from redelivery.core.report import Report
    from redelivery.events import Event
    from redelivery.message import Message

__all__ = ["StopCondition"]

# Outcomes after which a message is not handled again: its dead letter may have no confirmation yet, or be set aside.
ENDS = ("accepted", "discarded", "poisoned")
# Seconds between looks at whether the connection stands.
LOOK = 0.1
# Seconds: until after the end, when what is parked is given back.
LATER = 86400.0


class StopCondition:
    """Observes one consumer, and calls `stop` when it is done.

    A message is finished when it is accepted, discarded, poisoned or set aside; one that waits for a redelivery is not.
    """

    def __init__(
        self, count: int | None = None, idle: float | None = None, *, scheduler: str = "client"
    ) -> None:
        if count is not None and scheduler == "broker":
            # What is too many is put off until the end, which at the broker is another day; and copies have new ids.
            raise ConfigurationError(
                "--count needs redelivery.scheduler=client: with broker what fails comes again as another message; use "
                "--idle",
                option="--count",
            )
        self.stop: Callable[[], None] = lambda: None
        self.connected: Callable[[], bool] = lambda: True
        self._count = count
        self._idle = idle
        self._finished = 0
        self._put_off = 0
        self._begun: set[Delivery] = set()
        self._admitted: set[str] = set()
        self._nameless = 0
        self._last = time.monotonic()
        self._lock = threading.Lock()
        self._ended = threading.Event()

    def __call__(self, event: Event) -> None:
        """Take note of an event: it is an observer of the connection."""
        with self._lock:
            match event:
                case Started():
                    self._begun.add(event.delivery)
                case Finished() if event.outcome in ENDS:
                    self._finish(event.delivery)
                case Finished() if event.outcome == "released":
                    self._begun.discard(event.delivery)
                case _:
                    pass
            self._last = time.monotonic()
            done = self._count is not None and self._finished >= self._count
        if done:
            self.end()

    def _finish(self, delivery: Delivery) -> None:
        # Only once: a copy that is confirmed is accepted, too. What expired was never begun.
        if delivery in self._begun:
            self._begun.discard(delivery)
            self._finished += 1

    def admit(self, message: Message) -> None:
        """Let the first `count` messages pass, each as often as it is redelivered. Raises Defer for the others.

        They are parked here, uncharged, until the end: given back at once they would come again at once.
        """
        with self._lock:
            if not self._ended.is_set():
                if self._count is None or message.message_id in self._admitted:
                    return
                if len(self._admitted) + self._nameless < self._count or self._lost():
                    if message.message_id is not None:
                        self._admitted.add(message.message_id)
                    elif message.redelivery_count == 0:
                        self._nameless += 1
                    return
                if message.message_id is None and message.redelivery_count:
                    return
            self._put_off += 1
        raise Defer(LATER, "not needed any more")

    def without_own(self, report: Report) -> Report:
        """Return the report without what `admit` has put off: the handler never saw it."""
        return replace(report, deferred=max(0, report.deferred - self._put_off))

    def _lost(self) -> bool:
        """Whether a message was begun on a connection that is gone: its copy may come under another name."""
        return any(delivery.state == "lost" for delivery in self._begun)

    def end(self) -> None:
        """Begin nothing more, and stop."""
        self._ended.set()
        self.stop()

    def watch(self) -> None:
        """Start to look for the end by `idle`, if that was asked for."""
        self._last = time.monotonic()
        if self._idle is not None:
            threading.Thread(target=self._watch, args=(self._idle,), daemon=True).start()

    def _watch(self, idle: float) -> None:
        wait = idle
        while not self._ended.wait(min(wait, LOOK)):
            with self._lock:
                self._begun = {d for d in self._begun if d.state not in ("lost", "settled", "aside", "held")}
                if not self.connected():
                    # Nobody knows what waits at the broker.
                    self._last = time.monotonic()
                wait = max(self._last + idle - time.monotonic(), 0.0) if not self._begun else max(idle, 0.05)
            if not self._begun and wait <= 0:
                self.end()

"""Condition on which `consume --count` stops: a number of messages."""

from __future__ import annotations

import threading
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

# Outcomes after which a message is not handled again: its dead letter can be unconfirmed, or set aside.
ENDS = ("accepted", "discarded", "poisoned")
# Seconds. Longer than any run: parked messages are released at its end.
LATER = 86400.0


class StopCondition:
    """Observer of one consumer; calls `stop` when the condition holds.

    A message is finished when it is accepted, discarded, dead-lettered or set aside. A parked one is not.
    """

    def __init__(self, count: int | None = None, *, scheduler: str = "client") -> None:
        if count is not None and scheduler == "broker":
            # Surplus messages are deferred until the end, which at the broker is a day; and copies have new ids.
            raise ConfigurationError(
                "--count needs redelivery.scheduler=client: with broker a failed message becomes another one; "
                "use --idle",
                option="--count",
            )
        self.stop: Callable[[], None] = lambda: None
        self._count = count
        self._finished = 0
        self._put_off = 0
        self._begun: set[Delivery] = set()
        self._admitted: set[Delivery] = set()
        self._lock = threading.Lock()
        self._ended = threading.Event()

    @property
    def finite(self) -> bool:
        """True if the run is to end by itself."""
        return self._count is not None

    def __call__(self, event: Event) -> None:
        """Record an event of the connection."""
        if self._count is None:
            return
        with self._lock:
            match event:
                case Started():
                    self._begun.add(event.delivery)
                case Finished() if event.outcome in ENDS:
                    self._finish(event.delivery)
                case Finished() if event.outcome == "released":
                    # It comes back as another delivery.
                    self._begun.discard(event.delivery)
                    self._admitted.discard(event.delivery)
                case _:
                    pass
            done = self._finished >= self._count
        if done:
            self.end()

    def _finish(self, delivery: Delivery) -> None:
        # Only once: a confirmed copy is an acceptance, too. An expired message was never begun.
        if delivery in self._begun:
            self._begun.discard(delivery)
            self._finished += 1

    def admit(self, message: Message) -> None:
        """Return for the first `count` messages, at each of their deliveries. Raises Defer for the others.

        The others are parked, uncharged, until the end: the broker would redeliver released ones at once.
        """
        # Not its id: a producer may give one id to all messages, or none.
        delivery = message._delivery  # pyright: ignore[reportPrivateUsage]
        with self._lock:
            if not self._ended.is_set():
                if self._count is None or delivery in self._admitted:
                    return
                if len(self._admitted) < self._count or self._lost():
                    self._admitted.add(delivery)
                    return
            self._put_off += 1
        raise Defer(LATER, "not needed any more")

    def without_own(self, report: Report) -> Report:
        """Return the report without the messages that `admit` deferred: the handler never got them."""
        return replace(report, deferred=max(0, report.deferred - self._put_off))

    def _lost(self) -> bool:
        """True if a message was begun on a lost connection: its redelivery is another delivery."""
        return any(delivery.state == "lost" for delivery in self._begun)

    def end(self) -> None:
        """Admit no more messages, and stop."""
        self._ended.set()
        self.stop()

"""A listener whose handlers wait, each at a gate of its own, until the schedule opens it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import redelivery

if TYPE_CHECKING:
    from redelivery import Connection, Message
    from redelivery.testing import ManualClock

__all__ = ["Call", "GatedListener"]

WORKERS = 2


class Call:
    """One running handler. `how`: how it is to end, once that is decided."""

    def __init__(self, message: Message) -> None:
        self.message = message
        self.how: str | None = None


class GatedListener:
    """Handlers of one listener with several workers."""

    def __init__(self, connection: Connection, clock: ManualClock) -> None:
        self.calls: list[Call] = []
        self._clock = clock
        self._changed = threading.Condition()
        self._open = False
        connection.listen("q", self._handle, workers=WORKERS)

    def _handle(self, message: Message) -> None:
        call = Call(message)
        with self._changed:
            self.calls.append(call)
            while call.how is None and not self._open:
                self._clock.wait(self._changed, None)
        if call.how == "fail":
            raise ValueError("no")
        if call.how == "poison":
            raise redelivery.Poison("never")
        if call.how == "defer":
            raise redelivery.Defer(1, "later")

    def end(self, call: Call, how: str) -> None:
        """End a handler."""
        with self._changed:
            self.calls.remove(call)
            call.how = how
            # Each handler checks if the result is its own.
            self._clock.notify(self._changed, WORKERS)

    def let_go(self) -> None:
        """End all handlers, now and later."""
        with self._changed:
            self._open = True
            self._clock.notify(self._changed, WORKERS)

"""Browser of a queue: shows its messages one by one; they stay there. No engine: nothing is decided or settled."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Protocol

from redelivery.core.commands import Credit, Subscribe, Unsubscribe
from redelivery.core.events import Arrived
from redelivery.errors import TransportError, another

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from redelivery.adapter import Browsed, Subscribed
    from redelivery.clock import Clock
    from redelivery.core.capabilities import Capabilities
    from redelivery.core.commands import AdapterCommand
    from redelivery.core.delivery import Delivery
    from redelivery.errors import RedeliveryError

__all__ = ["Browser", "Browsers"]

# Messages of credit at a time: the queue's messages may not fit into memory.
WINDOW = 1000
# Seconds without a message or the end of the queue; after that, iterating raises TransportError.
SILENCE = 60.0


class Browser:
    """Iterable over the messages of one queue, from its head to its end. Iterate once."""

    def __init__(
        self, subscribe: Subscribe, execute: Callable[[Sequence[AdapterCommand]], None], clock: Clock
    ) -> None:
        self.subscribe = subscribe
        self._execute = execute
        self._clock = clock
        self._changed = threading.Condition()
        self._waiting: deque[Delivery] = deque()
        # Credit that the broker has not used yet.
        self._owed = 0
        self._over = False
        self._error: RedeliveryError | None = None

    def feed(self, event: Arrived | Browsed) -> None:
        """Take a message, or the end of the queue, on any thread."""
        with self._changed:
            if isinstance(event, Arrived):
                self._waiting += event.deliveries
                self._owed -= len(event.deliveries)
            else:
                self._over = True
            self._clock.notify(self._changed)

    def begun(self, able: Capabilities | None) -> None:
        """Do nothing when the subscription is confirmed: the messages and the end of the queue are enough."""

    def fail(self, error: RedeliveryError) -> None:
        """End with an error: nothing more will arrive."""
        with self._changed:
            self._error = self._error or error
            self._clock.notify(self._changed)

    def __iter__(self) -> Iterator[Delivery]:
        """Iterate over the messages.

        Raises:
            AdapterError: The broker refused to show the queue.
            TransportError: The connection was lost, or the broker sent nothing for `SILENCE` seconds.
        """
        number = self.subscribe.consumer
        self._owed = WINDOW
        self._execute((self.subscribe, Credit(number, WINDOW)))
        try:
            while (delivery := self._next()) is not None:
                yield delivery
        finally:
            self._execute((Unsubscribe(number),))

    def _next(self) -> Delivery | None:
        deadline = self._clock.monotonic() + SILENCE
        while True:
            with self._changed:
                if self._waiting:
                    return self._waiting.popleft()
                if self._error is not None:
                    raise another(self._error)
                if self._over:
                    return None
                more = self._owed <= 0
                if more:
                    self._owed += WINDOW
                elif (left := deadline - self._clock.monotonic()) <= 0:
                    raise TransportError(
                        f"the broker has sent no further message of {self.subscribe.destination} for {SILENCE:g} s"
                    )
                else:
                    self._clock.wait(self._changed, left)
            # Without the lock: memory:// answers at once.
            if more:
                self._execute((Credit(self.subscribe.consumer, WINDOW),))


class Looks(Protocol):
    """Interface of a receiver without an engine: a browser, a probe, or a look at a queue."""

    def feed(self, event: Arrived | Browsed, /) -> None:
        """Take a message, or the end of the queue."""

    def begun(self, able: Capabilities | None, /) -> None:
        """Called when the broker has confirmed the subscription; `able`: as in `Subscribed`."""

    def fail(self, error: RedeliveryError, /) -> None:
        """Called with an error when nothing more will arrive."""


class Browsers(dict[int, Looks]):
    """Browsers of one connection, by consumer number. A lost connection ends them: their place in the queue is lost."""

    def feed(self, event: Arrived | Browsed) -> None:
        """Pass an event to its browser."""
        browser = self.get(event.consumer)
        if browser is not None:
            browser.feed(event)

    def subscribed(self, event: Subscribed) -> None:
        """Pass the broker's answer to a subscription to its browser."""
        browser = self.get(event.consumer)
        if browser is not None and event.error is not None:
            browser.fail(event.error)
        elif browser is not None:
            browser.begun(event.capabilities)

    def lost(self, error: RedeliveryError) -> None:
        """End all browsers: the connection is lost."""
        for browser in list(self.values()):
            browser.fail(error)

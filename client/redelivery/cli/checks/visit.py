"""Visit to a broker over an adapter: one question after the other, and no message is taken.

It has no driver: nothing reconnects by itself, no credit is granted, and no handler runs. If the broker closes the
connection with a refusal, the next question opens another one.
"""

from __future__ import annotations

import time
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, TypeVar

from redelivery.adapter import Agreeing, Opening, Sent, Subscribed
from redelivery.clock import capped
from redelivery.core.commands import Accept, Credit, Send, Subscribe, Unsubscribe
from redelivery.core.dead_lettering.artemis_places import UNTOLD
from redelivery.core.events import Arrived, ConnectionLost
from redelivery.errors import RedeliveryError, TransportError
from redelivery.registry import adapter_for

if TYPE_CHECKING:
    from redelivery.adapter import AdapterEvent, Agreed
    from redelivery.clock import Clock
    from redelivery.core.capabilities import Capabilities
    from redelivery.core.delivery import Delivery
    from redelivery.core.outgoing import Outgoing
    from redelivery.settings import Endpoint, Settings

__all__ = ["Visit"]

Event = TypeVar("Event", Arrived, Sent, Subscribed)

# Seconds to close the connection properly.
GOODBYE = 2.0


class Visit:
    """Connection to one address of a broker, for one thread."""

    def __init__(self, settings: Settings, endpoint: Endpoint, clock: Clock) -> None:
        """Make a visit that is not open yet. Raises ConfigurationError if no adapter serves the scheme."""
        self._settings, self._endpoint, self._clock = settings, endpoint, clock
        self._adapter = adapter_for(endpoint.scheme)
        self._heard: SimpleQueue[AdapterEvent] = SimpleQueue()
        self._early: Arrived | None = None
        self._epoch = 0
        self._stands = False
        # True: a question may make the queue that it is about, where the broker does so.
        self.create = False
        # Capabilities of the broker for the queue that was subscribed last; None: it reports none.
        self.of_queue: Capabilities | None = None
        # Caution that the broker does not answer this user about dead letters: a connection has it once.
        self.untold = ""

    def open(self) -> Capabilities:
        """Connect and log in. Raises as `Adapter.open` does."""
        self._epoch += 1
        able = self._adapter.open(
            Opening(self._settings, self._endpoint, self._epoch, self._clock), self._heard.put
        )
        self._stands = True
        return able

    @property
    def agreed(self) -> Agreed | None:
        """Protocol version and heart-beats agreed at the log-in; None: the adapter does not report them."""
        return self._adapter.agreed() if isinstance(self._adapter, Agreeing) else None

    def subscribe(self, command: Subscribe, late: float = 0.0) -> RedeliveryError | None:
        """Return why a consumer is refused, or None. `late`: seconds in which a refusal can follow a confirmation."""
        if (error := self._ready()) is not None:
            return error
        self._adapter.execute((command,))
        answer = self._wait(Subscribed, self._settings.connect_timeout, command.consumer)
        self.of_queue = answer.capabilities if isinstance(answer, Subscribed) else None
        if self.of_queue is not None and self.of_queue.caution.startswith(UNTOLD):
            self.untold = self.of_queue.caution
        if answer is not None and answer.error is None and late:
            answer = self._wait(Subscribed, late, command.consumer) or answer
        return self._silent("a consumer") if answer is None else answer.error

    def ask_for_one(self, consumer: int) -> None:
        """Grant a consumer the credit of one message."""
        self._adapter.execute((Credit(consumer, 1),))

    def unsubscribe(self, consumer: int) -> None:
        """End a consumer."""
        if self._stands:
            self._adapter.execute((Unsubscribe(consumer),))

    def send(self, message: Outgoing) -> RedeliveryError | None:
        """Return why a message was not confirmed, or None."""
        if (error := self._ready()) is not None:
            return error
        self._adapter.execute((Send(1, message),))
        event = self._wait(Sent, self._settings.connect_timeout)
        return self._silent("a message") if event is None else event.error

    def arrival(self, timeout: float) -> Delivery | None:
        """Return the message that a consumer gets, acknowledged; None: none arrived in time."""
        event = self._early or self._wait(Arrived, timeout)
        if not isinstance(event, Arrived):
            return None
        self._adapter.execute((Accept(event.deliveries),))
        return event.deliveries[0]

    def close(self) -> None:
        """Close the connection."""
        self._stands = False
        self._adapter.close(GOODBYE)

    def _ready(self) -> RedeliveryError | None:
        """Connect again if the broker has ended the connection; return why that fails."""
        while not self._heard.empty():
            if isinstance(self._heard.get(), ConnectionLost):
                self._stands = False
        try:
            if not self._stands:
                self.open()
        except RedeliveryError as error:
            return error
        return None

    def _silent(self, what: str) -> TransportError:
        return TransportError(
            f"the broker did not confirm {what} within {self._settings.connect_timeout:g} s"
        )

    def _wait(
        self, kind: type[Event], timeout: float, consumer: int | None = None
    ) -> Event | ConnectionLost | None:
        """Return the next event of a kind, for a consumer; the loss of the connection; or None after the time-out."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                event = self._heard.get(timeout=capped(max(0.0, deadline - time.monotonic())))
            except Empty:
                return None
            if isinstance(event, ConnectionLost):
                self._stands = False
                return event
            if isinstance(event, kind) and consumer in (None, getattr(event, "consumer", None)):
                return event
            if isinstance(event, Arrived):
                # It arrived before the confirmation of its sending.
                self._early = event

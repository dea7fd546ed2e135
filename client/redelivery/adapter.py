"""The seam between the library and a broker's protocol: three methods out, one callable in, values only.

An adapter translates and decides nothing. It owns its sockets and their threads; no type or exception of the
library below it crosses this seam. It is found by URI scheme through the entry-point group `redelivery.adapters`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from redelivery.core.events import Arrived, Confirmed, ConnectionLost, TakenBack

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redelivery.clock import Clock
    from redelivery.core.capabilities import Capabilities
    from redelivery.core.commands import AdapterCommand
    from redelivery.core.delivery import Delivery
    from redelivery.errors import RedeliveryError
    from redelivery.settings import Endpoint, Settings

__all__ = [
    "Adapter",
    "AdapterEvent",
    "AdapterFactory",
    "Agreed",
    "Agreeing",
    "Browsed",
    "Opening",
    "Restore",
    "Restoring",
    "Sent",
    "Sink",
    "Subscribed",
]


@dataclass(frozen=True, slots=True)
class Sent:
    """The broker has confirmed the `Send` with this token, or refused it (`error`)."""

    token: int
    error: RedeliveryError | None = None


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The broker has confirmed the `Subscribe` of this consumer, or refused it (`error`), then or later.

    `capabilities`: what the broker can do with the queue of this consumer, where that is not what `open` returned.
    """

    consumer: int
    error: RedeliveryError | None = None
    capabilities: Capabilities | None = None


@dataclass(frozen=True, slots=True)
class Browsed:
    """All that was on the queue has been shown to this consumer, which browses."""

    consumer: int


AdapterEvent = Arrived | Browsed | Confirmed | ConnectionLost | Sent | Subscribed | TakenBack


class Sink(Protocol):
    """Where an adapter puts what happened, from any thread. It may block for 20 ms at most: less is read then."""

    def __call__(self, event: AdapterEvent, /) -> None:
        """Take one event."""


@dataclass(frozen=True, slots=True)
class Opening:
    """What an adapter needs to open one connection. `epoch` goes into every delivery and into `ConnectionLost`."""

    settings: Settings
    endpoint: Endpoint
    epoch: int
    clock: Clock


@dataclass(frozen=True, slots=True)
class Agreed:
    """What the two sides have agreed on when a connection was opened. Heart-beats: seconds between two; None: none."""

    protocol: str
    """Name and version: `STOMP 1.2`."""
    sends: float | None = None
    """We send one at least so often."""
    expects: float | None = None
    """The broker sends one at least so often."""


@runtime_checkable
class Agreeing(Protocol):
    """An adapter that also knows what was agreed. Optional: `redelivery doctor` asks where it can."""

    def agreed(self) -> Agreed | None:
        """Return what was agreed for the open connection; None: there is none."""
        ...


class Restore(Protocol):
    """Makes a delivery of what `Delivery.stored` returned; see `Restoring.restorer`."""

    def __call__(self, head: bytes, body: bytes | None, arrived: float, /) -> Delivery:
        """Return the delivery. `arrived`: seconds since the Unix epoch."""
        ...


@runtime_checkable
class Restoring(Protocol):
    """An adapter that makes deliveries from their stored bytes. Optional: the Spark source stores messages so."""

    def wire(self, destination: str) -> Mapping[str, str] | None:
        """Return how deliveries of the open connection are read, for `restorer`; None: there is no connection.

        Args:
            destination: that of the subscription, as in `Subscribe`.

        Returns:
            Names and values for JSON. No secret is among them.
        """
        ...

    def restorer(self, wire: Mapping[str, str], /) -> Restore:
        """Return a function that makes deliveries. It needs no connection, and the adapter need not be open.

        The function takes what `Delivery.stored` has returned, and the wall-clock time of the arrival. Each property
        of the delivery is that of the original. It belongs to no consumer and no connection: its epoch is 0.

        Raises:
            ConfigurationError: `wire` is none of this adapter's.
        """
        ...


class Adapter(Protocol):
    """One broker protocol. One instance serves one `Connection`, over all its reconnects."""

    def open(self, opening: Opening, sink: Sink) -> Capabilities:
        """Connect to one address and log in; return what this broker can do over this protocol.

        Raises:
            TransportError: nobody answers there, or the link broke; another try may help.
            AdapterError: the broker refused: wrong credentials, no such virtual host.
            ConfigurationError: a setting cannot work with this broker (a certificate that is no certificate).
        """
        ...

    def execute(self, commands: Sequence[AdapterCommand], /) -> None:
        """Carry out commands, in order. Callable from any thread; never raises.

        Never waits for the broker, neither for an answer nor until it reads: what its socket does not take is written
        behind the caller. Locks are held around this, and calls with a deadline are made of it.

        Answers come through the sink: `Sent` (also of a `Commit`), `Subscribed`, `Confirmed`, `Browsed`. What cannot be
        written is dropped, because `ConnectionLost` follows. A command for a delivery whose epoch is not the open
        connection's is dropped too; a `Commit` with one is answered with a TransportError, and nothing of it is done.
        """

    def close(self, timeout: float, /) -> bool:
        """Say goodbye and close, within `timeout` seconds. No event comes after it returns.

        Return whether the broker has answered the goodbye, so that it has read all that was written before.

        Callable while other threads are in `execute`. A write that the broker blocks must end with it.
        """
        ...


class AdapterFactory(Protocol):
    """What an entry point of the group `redelivery.adapters` must name."""

    def __call__(self) -> Adapter:
        """Return an adapter, not yet open."""
        ...

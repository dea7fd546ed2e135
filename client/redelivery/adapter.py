"""Seam between the library and a broker's protocol: three methods out, one callable in, values only.

An adapter translates and makes no decisions. It owns its sockets and their threads. No type or exception of
the protocol library that it uses crosses this seam. It is found by URI scheme in the entry-point group
`redelivery.adapters`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from redelivery.core.events import Arrived, Confirmed, ConnectionLost, QueueFound, TakenBack

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
    "Hearing",
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
    """The broker has confirmed this consumer's `Subscribe`, or refused it (`error`), at once or later.

    `capabilities`: what the broker can do with the queue of this consumer, if that differs from what `open`
    returned. What only a delivery shows is reported later, as `QueueFound`.
    """

    consumer: int
    error: RedeliveryError | None = None
    capabilities: Capabilities | None = None


@dataclass(frozen=True, slots=True)
class Browsed:
    """A browsing consumer has received all messages that were on its queue."""

    consumer: int


AdapterEvent = Arrived | Browsed | Confirmed | ConnectionLost | QueueFound | Sent | Subscribed | TakenBack


class Sink(Protocol):
    """Callable that takes the events of an adapter, from any thread.

    It may block for 20 ms at most: meanwhile the adapter reads less.
    """

    def __call__(self, event: AdapterEvent, /) -> None:
        """Take one event."""


@dataclass(frozen=True, slots=True)
class Opening:
    """Arguments of `Adapter.open`. `epoch` goes into every delivery and into `ConnectionLost`."""

    settings: Settings
    endpoint: Endpoint
    epoch: int
    clock: Clock


@dataclass(frozen=True, slots=True)
class Agreed:
    """Protocol and heart-beats that both sides agreed on. Heart-beats: seconds between two; None: none."""

    protocol: str
    """Name and version, such as `STOMP 1.2`."""
    sends: float | None = None
    """Most seconds between two heart-beats of this library."""
    expects: float | None = None
    """Most seconds between two heart-beats of the broker."""


@runtime_checkable
class Agreeing(Protocol):
    """Adapter that knows what was agreed. Optional; `redelivery doctor` prints it."""

    def agreed(self) -> Agreed | None:
        """Return what was agreed for the open connection; None: no connection is open."""
        ...


@runtime_checkable
class Hearing(Protocol):
    """Adapter that knows when it last heard from the broker. Optional; `health()` shows it."""

    def silence(self) -> float | None:
        """Return the seconds since a byte arrived from the broker; None: no connection is open. No lock, no I/O."""
        ...


class Restore(Protocol):
    """Function that makes a delivery of what `Delivery.stored` returned; see `Restoring.restorer`."""

    def __call__(self, head: bytes, body: bytes | None, arrived: float, /) -> Delivery:
        """Return the delivery.

        Args:
            head: First part of what `Delivery.stored` returned.
            body: Second part of it.
            arrived: Seconds since the Unix epoch at which the original arrived.
        """
        ...


@runtime_checkable
class Restoring(Protocol):
    """Adapter that makes deliveries from their stored bytes.

    Optional; the Spark source stores messages this way.
    """

    def wire(self, destination: str) -> Mapping[str, str] | None:
        """Return how deliveries of the open connection are read, for `restorer`.

        Args:
            destination: Destination of the subscription, as in `Subscribe`.

        Returns:
            Names and values for JSON, without secrets. None if no connection is open.
        """
        ...

    def restorer(self, wire: Mapping[str, str], /) -> Restore:
        """Return a function that makes deliveries. It needs no connection, and the adapter need not be open.

        The function takes what `Delivery.stored` returned, and the wall-clock time of the arrival. Each
        property of the delivery equals that of the original. It belongs to no consumer and no connection: its
        epoch is 0.

        Args:
            wire: Return value of `wire`.

        Returns:
            The function.

        Raises:
            ConfigurationError: `wire` was made by another adapter.
        """
        ...


class Adapter(Protocol):
    """One broker protocol. One instance serves one `Connection`, over all its reconnects."""

    def open(self, opening: Opening, sink: Sink) -> Capabilities:
        """Connect to one address and log in.

        Args:
            opening: Settings, address, epoch and clock of the connection.
            sink: Callable that takes the events of the connection, until `close` returns.

        Returns:
            What this broker can do over this protocol.

        Raises:
            TransportError: Nothing answers at the address, or the connection broke; trying again may help.
            AdapterError: The broker refused: wrong credentials, no such virtual host.
            ConfigurationError: A setting cannot work with this broker (a certificate file without a
                certificate).
        """
        ...

    def execute(self, commands: Sequence[AdapterCommand], /) -> None:
        """Carry out commands, in order. Callable from any thread; never raises.

        Never waits for the broker: neither for an answer, nor until the broker reads. Bytes that the socket
        does not take are written later, by another thread. Callers hold locks during this call, and some have
        a deadline.

        Answers arrive through the sink: `Sent` (also for a `Commit`), `Subscribed`, `Confirmed`, `Browsed`.
        Commands that cannot be written are dropped, because `ConnectionLost` follows. A command for a
        delivery of another epoch is dropped, too. A `Commit` with such a delivery is answered with a
        TransportError, and no part of it is carried out.

        Args:
            commands: Commands of the engine, in the order in which they are to be written.
        """

    def close(self, timeout: float, /) -> bool:
        """Log out and close. No event arrives after it returns.

        Callable while other threads are in `execute`. A write that the broker blocks must end with it.

        Args:
            timeout: Seconds for all of it.

        Returns:
            True if the broker has answered the log-out, and so has read all that was written before.
        """
        ...


class AdapterFactory(Protocol):
    """Object that an entry point of the group `redelivery.adapters` must name."""

    def __call__(self) -> Adapter:
        """Return an adapter, not yet open."""
        ...

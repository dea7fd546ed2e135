"""Events of the connection itself, and of messages that are sent."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redelivery.events.event import Event

if TYPE_CHECKING:
    from redelivery.core.report import Report

__all__ = [
    "Connected",
    "ConnectionLost",
    "DrainBegun",
    "Drained",
    "GivenUp",
    "ManyDropped",
    "Sent",
    "Unaccounted",
]


@dataclass(slots=True, repr=False, eq=False)
class Connected(Event):
    """The connection is up."""

    name = "connected"

    address: str
    """Address without user and password."""
    broker: str
    version: str
    """Empty if the broker does not send its version."""
    again: bool
    """True after a reconnect."""
    late: bool = False
    """True if once before it no address has answered."""
    unserved: bool = False
    """True if the connection before it served none of its consumers: the broker refuses them for now."""


@dataclass(slots=True, repr=False, eq=False)
class ConnectionLost(Event):
    """The connection was lost; the library reconnects."""

    name = "connection lost"

    error: BaseException
    unserved: bool = False
    """True if it served none of its consumers, and was given up for the next address."""


@dataclass(slots=True, repr=False, eq=False)
class GivenUp(Event):
    """The connection was given up; there is no further reconnect."""

    name = "given up"

    error: BaseException


@dataclass(slots=True, repr=False, eq=False)
class Unaccounted(Event):
    """Messages that were held when a connection was lost have not come back for a minute.

    The minute begins when their consumer is served again. Another consumer has them, or the broker has dropped them.
    """

    name = "unaccounted"

    messages: int


@dataclass(slots=True, repr=False, eq=False)
class Sent(Event):
    """A `send` has ended: the broker has confirmed the message, or `error` was raised."""

    name = "sent"

    destination: str
    message_id: str | None
    """Id that `send` returns."""
    seconds: float
    error: BaseException | None


@dataclass(slots=True, repr=False, eq=False)
class DrainBegun(Event):
    """A drain begins: nothing more is dispatched."""

    name = "drain begun"

    running: int
    """Handlers that run."""
    timeout: float
    """Seconds that the drain waits for them at most."""


@dataclass(slots=True, repr=False, eq=False)
class Drained(Event):
    """A drain has ended."""

    name = "drained"

    report: Report
    seconds: float
    """Seconds that it took."""

    def counts(self) -> dict[str, int]:
        """Return the counters of the report that are not 0, by name."""
        return {name: count for name, count in dataclasses.asdict(self.report).items() if count}

    def fields(self) -> dict[str, Any]:
        """Return the event as plain values, with the counters of the report that are not 0."""
        return {"event": self.name, "at": self.at, "seconds": self.seconds, **self.counts()}


@dataclass(slots=True, repr=False, eq=False)
class ManyDropped(Event):
    """Messages were dropped instead of dead-lettered. Emitted once for each `redelivery.reportInterval` of them."""

    name = "many dropped"

    dropped: int
    """Number of dropped messages so far."""

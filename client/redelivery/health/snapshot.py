"""Health of a connection at one moment: what `connection.health()` returns, for probes, metrics and people.

Values only: nothing here looks at a connection, waits, or takes a lock.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from redelivery.core.report import Report

__all__ = ["ConnectionHealth", "ConsumerHealth", "ConsumerState", "Health", "ReadyWhen"]

ConsumerState = Literal["starting", "consuming", "waiting for the broker", "paused", "stopped", "drained"]
ReadyWhen = Literal["consuming", "connected"]


@dataclass(frozen=True, slots=True)
class ConnectionHealth:
    """State of the connection to the broker."""

    connected: bool
    """True if the connection is up now."""
    address: str
    """Address of the last connection, without credentials; empty before the first one.

    If the name has several addresses, the node's IP address stands behind it: `amqp://cluster.test:5672 (10.0.0.4)`.
    """
    broker: str
    """Name and version of the broker of the last connection; empty before the first one."""
    since_s: float
    """Seconds since the last connection began; 0 before the first one."""
    reconnects: int
    """Number of connections after the first one."""
    silent_s: float | None = None
    """Seconds since a byte arrived from the broker; None: not connected, or the adapter does not know.

    A broker that is well sends a heart-beat at least every `redelivery.heartbeat`.
    """
    hook_calls_dropped: int = 0
    """Number of calls of `on_dead_letter` and `on_retry` that were not made, because too many waited."""


@dataclass(frozen=True, slots=True)
class ConsumerHealth:
    """State of one listener, or of one consumer that the application pulls from."""

    destination: str
    """Qualified name: `queue://orders`."""
    state: ConsumerState
    """`waiting for the broker`: the connection is lost, or the broker has not confirmed the subscription."""
    workers: int
    """Number of workers of a listener; 0 for a consumer that the application pulls from."""
    workers_alive: int
    """Number of these workers that have not ended."""
    running: int
    """Number of messages that the application has unsettled."""
    oldest_running_s: float
    """Seconds since the start of the handler that has run the longest; 0 if none runs."""
    parked: int
    """Number of failed messages that are kept here until they are due."""
    oldest_parked_s: float
    """Seconds since the first failure of the message that has been parked the longest; 0 if none is parked."""
    last_dispatch_s: float | None
    """Seconds since a handler was started last; None if none was, or if the application pulls."""
    unconfirmed: int
    """Number of dead letters that the broker has not confirmed."""
    paused: bool = False
    """True if the application has paused the consumer."""
    breaker: str = "off"
    """State of its circuit breaker: `closed`, `open`, `probing`, `ramp`; `off` without one, or before the start."""
    breaker_open_s: float = 0.0
    """Seconds since the breaker opened; 0 while messages are handled."""
    breaker_cause: str | None = None
    """Type and text of the last failure that the breaker counted; None: nothing has failed."""
    error: str | None = None
    """Type and text of the error that stopped the consumer; None: no error has stopped it."""
    ready: int = 0
    """Number of messages that have arrived and wait for a free worker."""
    credit: int = 0
    """Number of unsettled messages that may be here, without parked ones; 0 before the consumer is started."""
    unconfirmed_cause: str | None = None
    """Type and text of the broker's last refusal of a dead letter or delayed copy; None: it has confirmed one since."""
    refusal: str | None = None
    """Type and text of the broker's last refusal of this consumer, which waits for it; None: it is confirmed."""


@dataclass(frozen=True, slots=True)
class Health:
    """Health of a connection at one moment."""

    live: bool
    """False if a new process would help: an error has ended a consumer, a worker or the connection's own thread.

    It stays True with an unreachable broker, an open circuit breaker, parked messages and dead letters.
    """
    ready: bool
    """True if messages are consumed, or could be. False if not live, not connected, draining or closed."""
    reasons: tuple[str, ...]
    """One sentence for each reason why `live` or `ready` is False, those of `live` first."""
    connection: ConnectionHealth
    consumers: tuple[ConsumerHealth, ...]
    """Listeners in the order of their registration, then consumers that the application pulls from."""
    totals: Report
    """Totals of all dispatches so far: the same as `connection.report()`."""
    unaccounted: int = 0
    """Number of messages, held here when a connection was lost, that have not come back since, for an hour at most.

    A minute after their consumer was served again; another consumer has them, or the broker has dropped them.
    """

    def as_dict(self) -> dict[str, Any]:
        """Return the health as dictionaries, lists and plain values, seconds rounded to milliseconds."""
        return {
            "live": self.live,
            "ready": self.ready,
            "reasons": list(self.reasons),
            "connection": _rounded(asdict(self.connection)),
            "consumers": [_rounded(asdict(consumer)) for consumer in self.consumers],
            "totals": asdict(self.totals),
            "unaccounted": self.unaccounted,
        }

    def as_json(self) -> str:
        """Return the health as one line of JSON."""
        return json.dumps(self.as_dict())


def _rounded(values: dict[str, Any]) -> dict[str, Any]:
    return {name: round(value, 3) if isinstance(value, float) else value for name, value in values.items()}

"""Where a message reaches the queue that it is sent to, on ActiveMQ Artemis, by its list of queues.

Artemis confirms and drops what is sent to the name of a queue that belongs to another address, and what a filter keeps
out (docs/measured/artemis-dead-letter-address.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from redelivery.core.dead_lettering.artemis_named_place import dropped_at, elsewhere, queues_at
from redelivery.core.destination import Destination
from redelivery.dlq.broker_management import managed
from redelivery.driver.port import ConnectionPort
from redelivery.errors import AdapterError, TransportError

if TYPE_CHECKING:
    from redelivery.clock import Clock
    from redelivery.core.capabilities import Capabilities

__all__ = ["Reached", "ReachedQueues"]


class Reached(NamedTuple):
    """Answer for one destination: where messages for it are sent, and why the broker may drop them there, or ""."""

    destination: str
    dropped: str = ""


class ReachedQueues:
    """Asks over a connection of its own: over STOMP a refused question ends the connection it is asked on.

    A broker that lists no queues, or not to this user, is believed to keep all.
    """

    def __init__(self, uri: str, clock: Clock) -> None:
        self._uri = uri
        self._clock = clock
        self._port: ConnectionPort | None = None
        self._answers = True

    def of(self, destination: str, able: Capabilities) -> Reached:
        """Ask for a destination; `able`: of the broker."""
        place, address = Destination.parse(destination), able.management_address
        if address is None or place.kind not in ("queue", "native") or not self._answers:
            return Reached(destination)
        try:
            with managed(self.connected(), address) as management:
                queues = management.answered(queues_at(place))
                if (found := elsewhere(place, queues)) is not None:
                    destination = f"native://{found['address']}::{found['name']}"
                    place, queues = Destination.parse(destination), [found]
        except (AdapterError, TransportError):
            self._answers = False
            return Reached(destination)
        return Reached(destination, dropped_at(place, queues, origin=""))

    def close(self) -> None:
        """End the connection."""
        if self._port is not None:
            self._port.close()
            self._port = None

    def connected(self) -> ConnectionPort:
        """Return the connection, open. Raises as `ConnectionPort.__enter__` does."""
        if self._port is None:
            self._port = ConnectionPort(
                self._uri, clock=self._clock, made_by="redelivery.dead_letters", quiet=True
            )
            self._port.__enter__()
        return self._port

"""The adapter behind `memory://`: it hands commands to the broker in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.core.capabilities import Capabilities
from redelivery_memory.broker import clock_of, hub_named
from redelivery_memory.server import DEAD_LETTERS
from redelivery_memory.stored_messages import restored

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redelivery.adapter import Opening, Restore, Sink
    from redelivery.clock import Clock
    from redelivery.core.commands import AdapterCommand
    from redelivery.settings import Endpoint
    from redelivery_memory.connection import MemoryConnection
    from redelivery_memory.server import MemoryServer

__all__ = ["CAPABILITIES", "MemoryAdapter"]

CAPABILITIES = Capabilities(
    broker="memory",
    poison_persistent=True,
    poison_non_persistent=True,
    forward="atomic",
    flow=True,
    release=True,
    counts=True,
    transactions=True,
    dead_letter_destination=DEAD_LETTERS,
    batch=False,
    browse=True,
    reschedule="atomic",
    reschedule_proof="certain",
)


class MemoryAdapter:
    """Connects to the broker `memory://name` of this process. Events come in the thread that causes them."""

    def __init__(self) -> None:
        self._open: tuple[MemoryServer, MemoryConnection] | None = None

    @staticmethod
    def clock_at(endpoint: Endpoint) -> Clock | None:
        """Return the clock that the broker of that name was given, or None: connections to it take no other."""
        return clock_of(endpoint.host)

    def open(self, opening: Opening, sink: Sink) -> Capabilities:
        """Connect. Raises what `MemoryBroker.refuse_connections` says: TransportError, if nothing else."""
        self.close(0)
        server = hub_named(opening.endpoint.host, opening.clock)
        self._open = server, server.connect(opening.epoch, sink, opening.settings.client_id)
        return CAPABILITIES

    def wire(self, destination: str) -> Mapping[str, str] | None:
        """Return nothing but the destination: a delivery has all of it; see `redelivery.adapter.Restoring`."""
        return None if self._open is None else {"destination": destination}

    def restorer(self, wire: Mapping[str, str], /) -> Restore:
        """Return what makes deliveries; see `redelivery.adapter.Restoring.restorer`."""
        del wire
        return restored

    def execute(self, commands: Sequence[AdapterCommand], /) -> None:
        """Carry out commands, in order, and hand over to the sink what follows from them."""
        if self._open is not None:
            server, link = self._open
            server.execute(link, commands)

    def close(self, timeout: float, /) -> bool:
        """Close; what is unsettled goes back, counted. Waits for a sink that is still running."""
        if self._open is None:
            return False
        server, link = self._open
        self._open = None
        server.disconnect([link])
        link.settle(timeout)
        return True

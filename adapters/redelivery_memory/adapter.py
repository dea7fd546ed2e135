"""Adapter for `memory://`: passes commands to the broker in this process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from redelivery.adapter_support.keyboard_interrupts import Uninterrupted
from redelivery.core.capabilities import Capabilities
from redelivery.core.outgoing import Outgoing
from redelivery_memory.broker import clock_of, hub_named
from redelivery_memory.messages import MemoryDelivery, StoredMessage
from redelivery_memory.queues import Queue
from redelivery_memory.server import DEAD_LETTERS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redelivery.adapter import Opening, Restore, Sink
    from redelivery.clock import Clock
    from redelivery.core.commands import AdapterCommand
    from redelivery.settings import Endpoint
    from redelivery_memory.server import MemoryConnection, MemoryServer

__all__ = ["CAPABILITIES", "MemoryAdapter"]


# ---- Stored messages -------------------------------------------------------------------------------------
# Deliveries of the memory broker, restored from the bytes that `MemoryDelivery.stored` returned.


def restored(head: bytes, body: bytes | None, arrived: float) -> MemoryDelivery:
    """Return a delivery without a consumer. Its properties do not depend on `arrived`."""
    del arrived
    known: dict[str, Any] = json.loads(head)
    fields: dict[str, Any] = {**known["message"], "body": body or b""}
    message = Outgoing(**fields)
    stored = StoredMessage(known["broker_id"], known["number"], message, known["timestamp"])
    stored.count, stored.notes = known["count"], known["notes"]
    return MemoryDelivery(0, 0, Queue(known["queue"], known["address"]), stored)


# ---- Adapter ---------------------------------------------------------------------------------------------

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
    binds_groups=False,
    browse=True,
    reschedule="atomic",
    reschedule_proof="certain",
)


class MemoryAdapter:
    """Adapter for the broker `memory://name` of this process. Events run on the thread that causes them."""

    def __init__(self) -> None:
        self._open: tuple[MemoryServer, MemoryConnection] | None = None

    @staticmethod
    def clock_at(endpoint: Endpoint) -> Clock | None:
        """Return the manual clock of an endpoint's broker, which its connections must use too; None: it has none."""
        return clock_of(endpoint.host)

    def open(self, opening: Opening, sink: Sink) -> Capabilities:
        """Connect. Raises the error of `MemoryBroker.refuse_connections` while connections are refused."""
        self.close(0)
        server = hub_named(opening.endpoint.host, opening.clock)
        self._open = server, server.connect(opening.epoch, sink, opening.settings.client_id)
        return CAPABILITIES

    def wire(self, destination: str) -> Mapping[str, str] | None:
        """Return the destination only: a stored delivery has all the rest; see `redelivery.adapter.Restoring`."""
        return None if self._open is None else {"destination": destination}

    def restorer(self, wire: Mapping[str, str], /) -> Restore:
        """Return a function that restores deliveries; see `redelivery.adapter.Restoring.restorer`."""
        del wire
        return restored

    def execute(self, commands: Sequence[AdapterCommand], /) -> None:
        """Carry out commands in order, and pass the resulting events to the sink."""
        if self._open is not None:
            server, link = self._open
            server.execute(link, commands)

    def close(self, timeout: float, /) -> bool:
        """Close the connection, and wait up to `timeout` seconds for a running sink.

        Unsettled messages are on their queues again, counted.
        """
        if self._open is None:
            return False
        server, link = self._open
        # Ctrl-C between the two would leave the messages with a connection that no call closes any more.
        with Uninterrupted():
            self._open = None
            server.disconnect([link])
        link.settle(timeout)
        return True

"""Destinations that ActiveMQ Artemis would drop redriven messages at, by its list of queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.core.dead_lettering.artemis_named_place import dropped_at, queues_at
from redelivery.core.destination import Destination
from redelivery.dlq.broker_management import managed
from redelivery.errors import AdapterError, TransportError

if TYPE_CHECKING:
    from redelivery.driver.port import ConnectionPort

__all__ = ["drops_messages"]


def drops_messages(port: ConnectionPort, destination: str) -> str:
    """Return why the broker may drop messages that are sent to a queue or an address of its own; empty: not known.

    A broker that lists no queues, or not to this user, is believed to keep them.
    """
    place, address = Destination.parse(destination), port.capabilities.management_address
    if address is None or place.kind == "topic":
        return ""
    try:
        with managed(port, address) as management:
            queues = management.answered(queues_at(place))
    except (AdapterError, TransportError):
        return ""
    return dropped_at(place, queues, origin="")

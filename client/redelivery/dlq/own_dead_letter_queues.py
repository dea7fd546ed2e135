"""Queues of dead letters by the broker's own settings (ActiveMQ Artemis): those on its dead-letter addresses."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from redelivery.core.artemis_management import Question, rights
from redelivery.core.dead_lettering.artemis_own_place import DeadLetterSettings, own_place, settings_of
from redelivery.core.dead_lettering.artemis_queues import qualified_queue
from redelivery.core.destination import Destination
from redelivery.dlq.broker_management import holds_messages, managed
from redelivery.errors import AdapterError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from redelivery.dlq.broker_management import BrokerManagement
    from redelivery.driver.port import ConnectionPort

__all__ = ["own_dead_letter_queues"]

# Addresses that are asked for, one by one: a second on a busy broker.
MOST = 1000


def own_dead_letter_queues(port: ConnectionPort, origins: Sequence[str] = ()) -> tuple[tuple[str, ...], str]:
    """Return the queues of dead letters by the broker's own settings, and why there may be others, or "".

    `origins`: only the queues for the dead letters of these destinations, without wildcards; the usual one, where the
    settings name none that is there. Empty: all queues with messages on the dead-letter address of any address.

    Raises:
        TransportError: The connection was lost, or nothing has answered in time.
    """
    address = port.capabilities.management_address
    assert address is not None, "a broker that tells has one"
    try:
        with managed(port, address) as management:
            if origins:
                usual = port.capabilities.dead_letter_destination
                found = [_place_of(management, Destination.parse(each)) or usual for each in origins]
                return tuple(dict.fromkeys(found)), ""
            names = list(management.ask(Question("getAddressNames", ())))
            dead = set(_dead_letter_addresses(management, names[:MOST]))
            queues = sorted(
                qualified_queue(each)
                for each in management.queues()
                if each["address"] in dead and holds_messages(each)
            )
    except AdapterError as error:
        needs = rights(address)
        return (
            (),
            f"the broker does not name its dead-letter addresses to this user: {error}; give it {needs}",
        )
    more = f"the broker has more than {MOST:,} addresses: name the origin (--destination), or the dead-letter queue"
    return tuple(queues), more if len(names) > MOST else ""


def _dead_letter_addresses(management: BrokerManagement, addresses: Iterable[str]) -> Iterator[str]:
    for address in addresses:
        told = json.loads(management.ask(settings_of(address)))
        found = DeadLetterSettings.of(address, told)
        if found is not None:
            yield found.address


def _place_of(management: BrokerManagement, origin: Destination) -> str | None:
    """Return the queue that a consumer's dead letters go to; None: there is none yet, or none can be used."""
    place = management.answered(own_place(origin))
    return None if place is None or place.make is not None or place.problem else place.destination

"""Queues of dead letters by the broker's own settings (ActiveMQ Artemis): those on its dead-letter addresses."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from redelivery.core.artemis_management import Question, rights
from redelivery.core.dead_lettering.artemis_own_place import DeadLetterSettings, qualified_queue
from redelivery.core.destination import Destination
from redelivery.dlq.broker_management import holds_messages, managed
from redelivery.errors import AdapterError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from redelivery.dlq.broker_management import BrokerManagement
    from redelivery.driver.port import ConnectionPort

__all__ = ["own_dead_letter_queues"]

# Addresses that are asked for, one by one: a second on a busy broker.
MOST = 1000


def own_dead_letter_queues(port: ConnectionPort, origins: Sequence[str] = ()) -> tuple[tuple[str, ...], str]:
    """Return the queues with messages on the broker's dead-letter addresses, and why there may be others, or "".

    `origins`: only the queues for the dead letters of these destinations, without wildcards. Empty: of all addresses.

    Raises:
        TransportError: The connection was lost, or nothing has answered in time.
    """
    address = port.capabilities.management_address
    assert address is not None, "a broker that tells has one"
    try:
        with managed(port, address) as management:
            names = [Destination.parse(each).name.partition("::")[0] for each in origins]
            every = names or list(management.ask(Question("getAddressNames", ())))
            settings = list(_settings(management, every[:MOST]))
            found = sorted(
                qualified_queue(each)
                for each in management.queues()
                if holds_messages(each) and _takes(each, settings, every=not names)
            )
    except AdapterError as error:
        return (
            (),
            f"the broker does not tell its dead-letter addresses to this user: {error}; give it {rights(address)}",
        )
    more = f"the broker has more than {MOST:,} addresses: name the origin (--destination), or the dead-letter queue"
    return tuple(found), more if len(every) > MOST else ""


def _settings(management: BrokerManagement, addresses: Iterable[str]) -> Iterator[DeadLetterSettings]:
    for address in addresses:
        told = json.loads(management.ask(Question("getAddressSettingsAsJSON", (address,))))
        found = DeadLetterSettings.of(address, told)
        if found is not None:
            yield found


def _takes(queue: Mapping[str, str], settings: Sequence[DeadLetterSettings], *, every: bool) -> bool:
    """True for a queue on a dead-letter address; unless `every`, of one with a queue for each address only that one."""
    return any(
        queue["address"] == each.address and (every or each.queue in (None, queue["name"]))
        for each in settings
    )

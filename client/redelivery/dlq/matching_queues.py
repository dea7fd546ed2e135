"""Queues whose names match a pattern, where the broker's own wildcards are other queues (ActiveMQ Artemis)."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

from redelivery.core.artemis_management import rights
from redelivery.core.dead_lettering.artemis_queues import ORIGIN, qualified_queue
from redelivery.core.destination import Destination
from redelivery.core.policy.artemis_wildcards import ARTEMIS
from redelivery.core.policy.classic_wildcards import check_wildcards, covers
from redelivery.dlq.broker_management import holds_messages, managed
from redelivery.errors import AdapterError, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redelivery.driver.port import ConnectionPort

__all__ = ["queues_matching"]


def queues_matching(port: ConnectionPort, pattern: Destination) -> tuple[str, ...]:
    """Return the queues with messages whose names match, qualified, in the order of their names.

    Not among them are temporary queues, the broker's internal ones, those of subscribers, and those that it has made
    for a wildcard, which have copies.

    Raises:
        AdapterError: The broker does not list its queues to this user.
        ConfigurationError: It does to none, or the pattern cannot match.
        TransportError: The connection was lost, or nothing has answered in time.
    """
    check_wildcards(pattern)
    address = port.capabilities.management_address
    if address is None:
        raise ConfigurationError(
            f"{pattern}: {port.capabilities.broker} does not list its queues; name each one",
            option="destination",
        )
    try:
        with managed(port, address) as management:
            found = [
                each for each in management.queues() if covers(pattern, Destination("queue", each["name"]))
            ]
    except AdapterError as error:
        raise AdapterError(
            f"{pattern}: the broker does not list its queues to this user: {error}; give it {rights(address)}, or name "
            "each queue"
        ) from error
    return tuple(qualified_queue(one) for one in sorted(found, key=itemgetter("name")) if _of_consumers(one))


def _of_consumers(queue: Mapping[str, str]) -> bool:
    """True for a queue that has messages of its own, which consumers share."""
    if not holds_messages(queue) or not {"*", ARTEMIS.any_words}.isdisjoint(queue["name"].split(".")):
        return False
    # The filter is that of a queue which the broker has made for the dead letters of one address.
    return queue["routingType"] == "ANYCAST" or queue["filter"].startswith(ORIGIN)

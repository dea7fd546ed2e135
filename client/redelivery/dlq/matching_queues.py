"""Queues whose names match a pattern, where the broker's own wildcards are other queues (ActiveMQ Artemis)."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

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

__all__ = ["Matching", "queues_matching"]


class Matching(NamedTuple):
    """Queues whose names match, qualified, in the order of their names."""

    names: tuple[str, ...]
    subscribers: tuple[str, ...]
    """Those of subscribers, which need not be dead letters: they are not looked at."""


def queues_matching(port: ConnectionPort, pattern: Destination) -> Matching:
    """Return the queues with messages whose names match.

    Not among them are temporary queues, the broker's internal ones, and those that it has made for a wildcard, which
    have copies.

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
    there = [one for one in sorted(found, key=itemgetter("name")) if _has_messages(one)]
    return Matching(
        tuple(qualified_queue(one) for one in there if _of_consumers(one)),
        tuple(qualified_queue(one) for one in there if not _of_consumers(one)),
    )


def _has_messages(queue: Mapping[str, str]) -> bool:
    """True for a queue that has messages, and no copies for a wildcard."""
    return holds_messages(queue) and {"*", ARTEMIS.any_words}.isdisjoint(queue["name"].split("."))


def _of_consumers(queue: Mapping[str, str]) -> bool:
    """True for a queue that consumers share."""
    # The filter is that of a queue which the broker has made for the dead letters of one address.
    return queue["routingType"] == "ANYCAST" or queue["filter"].startswith(ORIGIN)

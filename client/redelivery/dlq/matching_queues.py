"""Queues whose names match a pattern, where the broker's own wildcards are other queues (ActiveMQ Artemis)."""

from __future__ import annotations

import json
import uuid
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from redelivery.core.dead_lettering.redrive import Redrive
from redelivery.core.destination import Destination
from redelivery.core.outgoing import Outgoing
from redelivery.core.policy.artemis_wildcards import ARTEMIS
from redelivery.core.policy.classic_wildcards import check_wildcards, covers
from redelivery.errors import AdapterError, ConfigurationError, TransportError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from redelivery.driver.port import ConnectionPort, ConsumerPort

__all__ = ["queues_matching"]

# The answers. A plain subscriber's queue ends with it; of a queue of our own, the default configuration keeps it.
ANSWERS = "redelivery.management"
# Queues in one answer, in which each has about 1 kB. Queues that end between two answers would move others out of both.
PAGE = 10_000
# Artemis 2.31.2 refuses an empty text, and one without these fields.
NO_FILTER = '{"field":"","operation":"","value":""}'
# The filter of a queue that Artemis itself has made for the dead letters of one address.
OWN_FILTER = "_AMQ_ORIG_ADDRESS"


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
        found = [one for one in _listed(port, address) if covers(pattern, Destination("queue", one["name"]))]
    except AdapterError as error:
        raise AdapterError(
            f"{pattern}: the broker does not list its queues to this user: {error}; give it the right to manage and to "
            f"send to {address}, and to subscribe to topic://{ANSWERS}, or name each queue"
        ) from error
    return tuple(_qualified(one) for one in sorted(found, key=itemgetter("name")) if _holds_messages(one))


def _holds_messages(queue: Mapping[str, str]) -> bool:
    """True for a queue that has messages of its own, which consumers share."""
    if queue["messageCount"] == "0" or queue["temporary"] == "true" or queue.get("internalQueue") == "true":
        return False
    if not {"*", ARTEMIS.any_words}.isdisjoint(queue["name"].split(".")):
        return False
    return queue["routingType"] == "ANYCAST" or queue["filter"].startswith(OWN_FILTER)


def _qualified(queue: Mapping[str, str]) -> str:
    name, address = queue["name"], queue["address"]
    plain = name == address and not {",", "?"} & set(name)
    return f"queue://{name}" if plain else f"native://{address}::{name}"


def _listed(port: ConnectionPort, address: str) -> Iterator[Mapping[str, str]]:
    plan = port.plan(f"topic://{ANSWERS}", {}, route=Redrive(""))
    with port.consume(plan) as consumer:
        for page in range(1, 1_000_000):
            told = json.loads(_asked(port, consumer, address, "listQueues", [NO_FILTER, page, PAGE]))
            yield from told["data"]
            if page * PAGE >= int(told["count"]):
                return


def _asked(
    port: ConnectionPort, consumer: ConsumerPort, address: str, operation: str, arguments: Sequence[Any]
) -> str:
    """Return the broker's answer to a request. Raises AdapterError if it refuses."""
    mark, limit = uuid.uuid4().hex, port.settings.connect_timeout
    request = Outgoing(
        f"native://{address}", json.dumps(arguments).encode(), body_kind="text", reply_to=f"native://{ANSWERS}",
        headers={"_AMQ_ResourceName": "broker", "_AMQ_OperationName": operation}, correlation_id=mark, persistent=False,
    )  # fmt: skip
    port.send_connected(request).wait()
    while (answer := consumer.take(timeout=limit)) is not None:
        # Other users of this library have theirs on the same topic.
        if answer.correlation_id != mark:
            continue
        value = json.loads(answer.body)[0]
        if str(answer.headers.get("_AMQ_OperationSucceeded")).lower() != "true":
            raise AdapterError(str(value))
        return str(value)
    raise TransportError(
        f"{address} has not answered within {limit:g} s: is it the broker's management address?"
    )

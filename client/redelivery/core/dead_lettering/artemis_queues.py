"""Queues of ActiveMQ Artemis as its management lists them, and why one may not keep each dead letter.

Artemis confirms a message that no queue takes, and drops it (docs/measured/artemis-dead-letter-address.md).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from redelivery.core.artemis_management import PAGE, Question, where

if TYPE_CHECKING:
    from collections.abc import Mapping

    Queue = Mapping[str, str]

__all__ = ["ORIGIN", "listing", "loses", "origin_filter", "qualified_queue", "queues_in", "takes_only"]

# The property that the filter of Artemis' own dead-letter queues compares; its value is the address of the message's
# queue.
ORIGIN = "_AMQ_ORIG_ADDRESS"


def listing(field: str, value: str) -> Question:
    """Return the question for the queues whose `name` or `address` this is; `queues_in` reads the answer."""
    return Question("listQueues", (where(field.upper(), value), 1, PAGE))


def queues_in(told: str, field: str, value: str) -> list[Queue]:
    """Return the queues of an answer, whatever a version makes of the filter in the question."""
    return [one for one in json.loads(told)["data"] if one[field] == value]


def qualified_queue(queue: Queue) -> str:
    """Return the qualified name of a queue."""
    name, address = queue["name"], queue["address"]
    plain = name == address and queue["routingType"] == "ANYCAST" and not {",", "?"} & set(name)
    return f"queue://{name}" if plain else f"native://{address}::{name}"


def origin_filter(address: str) -> str:
    """Return the filter of the queue that Artemis makes for the dead letters of an address."""
    return "{} = '{}'".format(ORIGIN, address.replace("'", "''"))


def loses(queue: Queue) -> str:
    """Return why a queue loses messages that it has taken; empty: it keeps them."""
    if queue.get("enabled") == "false":
        return "is disabled"
    if queue.get("purgeOnNoConsumers") == "true":
        return "drops its messages while it has no consumer (purge-on-no-consumers)"
    if queue.get("ringSize", "-1") != "-1":
        return f"keeps the last {queue['ringSize']} messages only (ring-size)"
    if key := queue.get("lastValueKey"):
        return f"keeps the last message of each {key} only (last-value)"
    if queue.get("temporary") == "true" or queue.get("durable") == "false":
        return "does not outlive the broker (it is not durable)"
    return ""


def takes_only(queue: Queue, origin: str) -> str:
    """Return the filter that a queue has, and that dead letters of the address `origin` may not match; empty: none.

    It is not evaluated: no one can know which messages will fail.
    """
    condition = queue.get("filter", "")
    return "" if condition == origin_filter(origin) else condition

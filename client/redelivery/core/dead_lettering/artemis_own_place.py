"""Where ActiveMQ Artemis itself would put a dead letter of a queue: its address settings, asked of its management.

Measured with 2.31.2, 2.40.0 and 2.56.0 (docs/measured/artemis-dead-letter-address.md). A message to an address without
a queue that takes it is confirmed and dropped. One to `address::queue` is not: if the queue is gone, the broker makes
it again, or refuses. Only its filter drops it, and that of Artemis' own dead-letter queues is for the address of
the message's queue.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redelivery.core.artemis_management import PAGE, Question, where
from redelivery.core.destination import Destination
from redelivery.errors import AdapterError, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    Asking = Generator[Question, Any, "OwnPlace | None"]

__all__ = ["ORIGIN", "DeadLetterSettings", "OwnPlace", "own_place", "qualified_queue"]

# Artemis' default prefix of the queues that it makes for dead letters.
PREFIX = "DLQ."
# The property that the filter of such a queue compares, and its value is the address of the message's queue.
ORIGIN = "_AMQ_ORIG_ADDRESS"


@dataclass(frozen=True, slots=True)
class OwnPlace:
    """Dead-letter destination by the broker's own settings.

    Args:
        destination: Destination, qualified; it has a queue that takes the dead letters.
        address: Address of the queue whose dead letters they are; a filter of the destination may compare it.
        told: The setting that decides, in words.
    """

    destination: str
    address: str
    told: str


def own_place(source: Destination) -> Asking:
    """Yield the questions that find the broker's own place for the dead letters of a queue or topic, and return it.

    The caller sends the value of each answer in, or throws the error with which the broker has refused. The last
    question may make the queue, as the broker does with its first own dead letter.

    Args:
        source: Destination that is consumed: one, without wildcards.

    Returns:
        The place; None: the broker has none for this queue, and would drop its poison messages.

    Raises:
        AdapterError: The broker refuses an answer, or no queue can take the dead letters.
    """
    try:
        found = yield from _found(source)
        if found is not None:
            Destination.parse(found.destination)
    except ConfigurationError as error:
        raise AdapterError(f"the broker's dead-letter address cannot be named here: {error}") from None
    except (ValueError, LookupError, TypeError) as error:
        raise AdapterError(
            f"the broker's management answered something else than expected: {error!r}"
        ) from None
    return found


@dataclass(frozen=True, slots=True)
class DeadLetterSettings:
    """The dead-letter settings of one address.

    Args:
        address: Its `dead-letter-address`.
        queue: Queue of that address which has only the dead letters of this one (`auto-create-dead-letter-resources`);
            None: there is none.
    """

    address: str
    queue: str | None

    @classmethod
    def of(cls, address: str, told: Mapping[str, Any]) -> DeadLetterSettings | None:
        """Return those of an address in the broker's answer; None: it has no dead-letter address."""
        # Artemis 2.31.2 has the short name.
        dead = told.get("deadLetterAddress") or told.get("DLA")
        if not dead:
            return None
        queue = None
        if told.get("autoCreateDeadLetterResources"):
            prefix, suffix = told.get("deadLetterQueuePrefix", PREFIX), told.get("deadLetterQueueSuffix", "")
            queue = f"{prefix}{address}{suffix}"
        return cls(dead, queue)


def _found(source: Destination) -> Asking:
    address = yield from _address_of(source)
    told = json.loads((yield Question("getAddressSettingsAsJSON", (address,))))
    settings = DeadLetterSettings.of(address, told)
    if settings is None:
        return None
    dead, name, text = settings.address, settings.queue, f"the dead-letter-address of {address}"
    if name is not None:
        yield from _prove(dead, name, address)
        return OwnPlace(f"native://{dead}::{name}", address, f"{text}, which has a queue for each address")
    queues = yield from _queues("address", dead)
    return OwnPlace(_receiving(dead, queues), address, text)


def qualified_queue(queue: Mapping[str, str]) -> str:
    """Return the qualified name of a queue in the broker's list."""
    name, address = queue["name"], queue["address"]
    plain = name == address and not {",", "?"} & set(name)
    return f"queue://{name}" if plain else f"native://{address}::{name}"


def _address_of(source: Destination) -> Generator[Question, Any, str]:
    """Return the address of the queue that a consumer of this destination gets: its settings count."""
    address, both, _ = source.name.partition("::")
    if both or source.kind == "topic":
        return address
    # A queue is also found by its own name.
    found = yield from _queues("name", source.name)
    return found[0]["address"] if found else source.name


def _queues(field: str, value: str) -> Generator[Question, Any, list[dict[str, str]]]:
    told = yield Question("listQueues", (where(field.upper(), value), 1, PAGE))
    # Whatever a version makes of the filter.
    return [one for one in json.loads(told)["data"] if one[field] == value]


def _prove(dead: str, name: str, address: str) -> Generator[Question, Any, None]:
    """Find the queue that Artemis makes for the dead letters of one address, or make it.

    Raises:
        AdapterError: A queue of this name is elsewhere, or its filter would drop these dead letters.
    """
    own = "{} = '{}'".format(ORIGIN, address.replace("'", "''"))
    for queue in (yield from _queues("name", name)):
        if queue["address"] != dead or queue["filter"] not in ("", own):
            raise AdapterError(
                f"the queue {queue['address']}::{name} does not take the dead letters of {address}"
            )
        return
    made = {
        "name": name,
        "address": dead,
        "routing-type": "MULTICAST",
        "filter-string": own,
        "durable": True,
        "auto-create-address": True,
        # The broker's own would go with its last letter, if auto-delete-queues is set.
        "auto-delete": False,
    }
    # True: no error if another consumer has made it meanwhile.
    yield Question("createQueue", (json.dumps(made), True))


def _receiving(dead: str, queues: list[dict[str, str]]) -> str:
    """Return the destination that reaches queues which keep all dead letters of an address, with these queues."""
    shared, subscribers = (sorted(_keeping(queues, routing)) for routing in ("ANYCAST", "MULTICAST"))
    if dead in shared or not (shared or subscribers):
        # Without any queue the broker makes one, or refuses it.
        return qualified_queue({"name": dead, "address": dead})
    if not shared and len(subscribers) > 1:
        return f"topic://{dead}"
    return f"native://{dead}::{(shared or subscribers)[0]}"


def _keeping(found: list[dict[str, str]], routing: str) -> Iterator[str]:
    return (
        one["name"]
        for one in found
        if one["routingType"] == routing
        and (one["durable"], one["temporary"], one["filter"]) == ("true", "false", "")
    )

"""Where ActiveMQ Artemis itself would put a dead letter of a queue: its address settings, asked of its management.

Measured with 2.31.2, 2.40.0 and 2.56.0 (docs/measured/artemis-dead-letter-address.md). A message to an address is
confirmed and dropped if none of its queues takes it. One to `address::queue` is not: if the queue is gone, the broker
makes it again, or refuses. Only its filter drops it, and that of Artemis' own dead-letter queues is for the address of
the message's queue. So the place is one queue that is known to keep these dead letters.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from redelivery.core.artemis_management import Question, rights
from redelivery.core.dead_lettering.artemis_queues import (
    ORIGIN,
    listing,
    loses,
    origin_filter,
    qualified_queue,
    queues_in,
    takes_only,
)
from redelivery.core.destination import Destination
from redelivery.errors import AdapterError, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from redelivery.core.capabilities import Capabilities
    from redelivery.core.dead_lettering.artemis_queues import Queue
    from redelivery.errors import RedeliveryError

    Asking = Generator[tuple[Question, ...], Sequence[Any], "OwnPlace | None"]

__all__ = [
    "DeadLetterSettings",
    "OwnPlace",
    "own_place",
    "own_place_error",
    "settings_of",
    "unusable",
    "with_own_place",
    "without_answer",
]

# Artemis' default prefix of the queues that it makes for dead letters.
PREFIX = "DLQ."


@dataclass(frozen=True, slots=True)
class OwnPlace:
    """Dead-letter destination by the broker's own settings.

    Args:
        destination: Destination, qualified: one queue.
        address: Address of the queue whose dead letters they are; the filter of the destination may compare it.
        told: The setting that decides, in words.
        returns: The destination is what the consumer consumes.
        make: Question that makes its queue; None: the queue is there.
        problem: Why no dead letter can go there; empty: they can.
    """

    destination: str
    address: str
    told: str
    returns: bool = False
    make: Question | None = None
    problem: str = ""


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


def own_place(source: Destination) -> Asking:
    """Yield the questions that find the broker's own place for the dead letters of a queue or topic, and return it.

    The caller sends the values of the answers in, or throws the error with which the broker has refused one. Nothing is
    changed at the broker.

    Args:
        source: Destination that is consumed: one, without wildcards.

    Returns:
        The place; None: the broker has none for this queue, and would drop its poison messages.

    Raises:
        AdapterError: The broker refuses an answer, or gives another than expected.
    """
    try:
        found = yield from _found(source)
    except (ValueError, LookupError, TypeError) as error:
        raise AdapterError(
            f"the broker's management answered something else than expected: {error!r}"
        ) from None
    return found


def settings_of(address: str) -> Question:
    """Return the question for the settings of an address; `DeadLetterSettings.of` reads the answer."""
    return Question("getAddressSettingsAsJSON", (address,))


def own_place_error(source: str, place: OwnPlace) -> RedeliveryError | None:
    """Return why no consumer of a destination may begin whose dead letters go to this place; None: one may."""
    if place.returns:
        return ConfigurationError(
            f"{source} gets its own dead letters, by {place.told}: to read dead letters, add "
            "redelivery.deadLetterDestination=<another queue> to the URI, or dead_letter= to this consumer: messages "
            "that fail again go there",
            option="redelivery.deadLetterDestination",
        )
    return unusable(place, place.problem) if place.problem else None


def unusable(place: OwnPlace, why: str) -> AdapterError:
    """Return the error for a place of the broker's own to which no dead letter can go."""
    return AdapterError(
        f"dead letters belong in {place.destination}, by {place.told}, and that cannot be used: {why}; change the "
        "broker's setting, or name another place (redelivery.deadLetterDestination)"
    )


def with_own_place(able: Capabilities, place: OwnPlace | None) -> Capabilities:
    """Return the capabilities for a consumer with this place; None: the broker has none of its own."""
    if place is None:
        return able
    return replace(
        able,
        dead_letter_destination=place.destination,
        dead_letter_properties=((ORIGIN, place.address),),
        own_dead_letters=place.told,
    )


def without_answer(able: Capabilities, error: RedeliveryError) -> Capabilities:
    """Return the capabilities for the first consumer of a user who may not ask: with a caution."""
    needs = "" if able.management_address is None else rights(able.management_address)
    caution = (
        f"the broker does not tell where its own settings put dead letters ({error}): copies go to "
        f"{able.dead_letter_destination}; give this user {needs}, or name the place "
        "(redelivery.deadLetterDestination)"
    )
    return replace(able, caution=caution)


def _found(source: Destination) -> Asking:
    address, _, queue = source.name.partition("::")
    if queue or source.kind == "topic":
        (told,) = yield (settings_of(address),)
    else:
        queue = address
        told, listed = yield (settings_of(address), listing("name", queue))
        # A queue is found by its own name, and can belong to an address with another one, whose settings count.
        for found in queues_in(listed, "name", queue):
            if found["address"] != address:
                address = found["address"]
                (told,) = yield (settings_of(address),)
    settings = DeadLetterSettings.of(address, json.loads(told))
    if settings is None:
        return None
    field, value = ("address", settings.address) if settings.queue is None else ("name", settings.queue)
    (listed,) = yield (listing(field, value),)
    queues = queues_in(listed, field, value)
    target, make = _target(settings, queues, address)
    if make is not None and field == "address":
        # Artemis makes no second queue of a name, and calls that done.
        name = target["name"]
        (listed,) = yield (listing("name", name),)
        target, make = next(((each, None) for each in queues_in(listed, "name", name)), (target, make))
    told_by = f"the dead-letter-address of {address}"
    if settings.queue is not None:
        told_by += ", which has a queue for each address"
    return OwnPlace(
        _sent_to(target, apart=any(map(loses, queues))),
        address,
        told_by,
        returns=settings.address == address if source.kind == "topic" else target["name"] == queue,
        make=make,
        problem=_problem(target, settings, address),
    )


def _target(
    settings: DeadLetterSettings, queues: Sequence[Queue], address: str
) -> tuple[Queue, Question | None]:
    """Return the queue for the dead letters of an address, and the question that makes it, if it is missing."""
    dead = settings.address
    if settings.queue is None:
        keeping = [one for one in queues if not (one["filter"] or loses(one))]
        if keeping:
            # Several subscribers of a dead-letter address: the first by name.
            return min(
                keeping, key=lambda one: (one["routingType"] != "ANYCAST", one["name"] != dead, one["name"])
            ), None
        if not queues:
            return _made(dead, dead, "ANYCAST", "")
    # The broker drops what no queue of the address takes: its others have filters, or do not last.
    name = settings.queue or f"{PREFIX}{address}"
    there = next((one for one in queues if one["name"] == name), None)
    return (there, None) if there is not None else _made(name, dead, "MULTICAST", origin_filter(address))


def _sent_to(queue: Queue, *, apart: bool = False) -> str:
    """Return the destination for copies to a queue: by its address and name, if its name alone might not reach it.

    `apart`: another queue of its address loses messages.
    """
    if queue["routingType"] == "ANYCAST" and queue.get("autoDelete") != "true" and not apart:
        return qualified_queue(queue)
    return f"native://{queue['address']}::{queue['name']}"


def _problem(target: Queue, settings: DeadLetterSettings, address: str) -> str:
    queue = f"the queue {target['address']}::{target['name']}"
    if target["address"] != settings.address or takes_only(target, address):
        return f"{queue} does not take the dead letters of {address}"
    if why := loses(target):
        return f"{queue} {why}"
    try:
        Destination.parse(_sent_to(target))
    except ConfigurationError as error:
        return str(error)
    return ""


def _made(name: str, address: str, routing: str, condition: str) -> tuple[Queue, Question]:
    """Return a durable queue that stays when its last message is taken, and the question that makes it."""
    asked: dict[str, Any] = {
        "name": name,
        "address": address,
        "routing-type": routing,
        "durable": True,
        "auto-create-address": True,
        "auto-delete": False,
    }
    if condition:
        asked["filter-string"] = condition
    queue = {"name": name, "address": address, "routingType": routing, "filter": condition}
    # True: no error if another consumer has made it meanwhile.
    return queue, Question("createQueue", (json.dumps(asked), True))

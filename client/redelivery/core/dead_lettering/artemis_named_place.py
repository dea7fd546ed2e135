"""Dead-letter places that ActiveMQ Artemis would drop dead letters at, by its list of queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redelivery.core.dead_lettering.artemis_queues import listing, loses, queues_in, takes_only
from redelivery.errors import AdapterError

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from redelivery.core.artemis_management import Question
    from redelivery.core.dead_lettering.artemis_queues import Queue
    from redelivery.core.destination import Destination

    Asking = Generator[tuple[Question, ...], Sequence[Any], Sequence[Queue]]

__all__ = ["alone_at", "dropped_at", "elsewhere", "queues_at"]

_DROPS = "Artemis would confirm dead letters and drop them"
_CURE = "name a queue that keeps all (redelivery.deadLetterDestination, deadLetterMap, dead_letter=, poison(to=), --to)"


def queues_at(place: Destination) -> Asking:
    """Yield the questions for the queues of a place, and return them: those of its name, and those of its address.

    The caller sends the values of the answers in, or throws the error with which the broker has refused one.

    Raises:
        AdapterError: The broker refuses an answer, or gives another than expected.
    """
    address, _, name = place.name.partition("::")
    asked = [("name", name)] if name else [("address", address)]
    if place.kind == "queue" and not name:
        # A queue of this name can belong to another address; Artemis then confirms and drops what is sent to the name.
        asked.append(("name", address))
    answers = yield tuple(listing(*each) for each in asked)
    try:
        # `dropped_at` needs both.
        found = [
            queue
            for each, told in zip(asked, answers, strict=True)
            for queue in queues_in(told, *each)
            if queue["address"] and queue["name"]
        ]
        return list({_told(each): each for each in found}.values())
    except (ValueError, LookupError, TypeError) as error:
        raise AdapterError(
            f"the broker's management answered something else than expected: {error!r}"
        ) from None


def dropped_at(place: Destination, queues: Sequence[Queue], origin: str, *, refused: bool = True) -> str:
    """Return why dead letters of the address `origin` may be dropped at a place with these queues; empty: none is.

    The place was asked before: where Artemis makes missing queues, that has made one. `refused`: it refuses what is
    sent to a missing queue by its address and name, as it does over AMQP.
    """
    address, _, name = place.name.partition("::")
    if (reached := elsewhere(place, queues)) is not None:
        return f"the queue {address} belongs to the address {reached['address']}: {_DROPS}; name native://{_told(reached)}"
    queues = [each for each in queues if (each["name"] == name if name else each["address"] == address)]
    if not queues and place.kind == "native" and not (name and refused):
        missing = f"the queue {place.name} is not there" if name else f"the address {address} has no queue"
        return f"{missing}: {_DROPS}; {_CURE}"
    lost = {_told(each): _lost(each, address, origin) for each in queues}
    # The anycast queues of an address take turns. A filter keeps a queue out, and another one gets the message.
    turns = [each for each in queues if each.get("routingType") == "ANYCAST" and loses(each)]
    if not queues or (not all(lost.values()) and not turns):
        return ""
    told = "; ".join(f"{queue} {why}" for queue, why in lost.items() if why)
    return f"{told}: {_DROPS}; {_CURE}"


def elsewhere(place: Destination, queues: Sequence[Queue]) -> Queue | None:
    """Return the queue that a place names if it belongs to another address, and the address of that name has none."""
    name = place.name
    if place.kind != "queue" or any(each["address"] == name for each in queues):
        return None
    return next((each for each in queues if each["name"] == name), None)


def alone_at(place: Destination, queues: Sequence[Queue]) -> str:
    """Return the destination by which only the queue of a place gets what is sent there; "": the place's own, or none.

    Artemis sends a message for an address to each of its queues: beside the queue of that name there can be
    subscribers, and queues that it has made for dead letters.
    """
    address, _, name = place.name.partition("::")
    there = [each["name"] for each in queues if each["address"] == address]
    if place.kind != "queue" or (name or address) not in there or not (name or len(there) > 1):
        return ""
    return f"native://{address}::{name or address}"


def _told(queue: Queue) -> str:
    return f"{queue['address']}::{queue['name']}"


def _lost(queue: Queue, address: str, origin: str) -> str:
    if queue["address"] != address:
        return "has another address"
    if why := loses(queue):
        return why
    condition = takes_only(queue, origin)
    return f"takes only messages with {condition}" if condition else ""

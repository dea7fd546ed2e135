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

__all__ = ["dropped_at", "queues_at"]

_DROPS = "Artemis would confirm dead letters and drop them"
_CURE = "name a queue that keeps all (redelivery.deadLetterDestination, deadLetterMap, dead_letter=, poison(to=), --to)"


def queues_at(place: Destination) -> Asking:
    """Yield the question for the queues of a place, and return them: those of its name, or of its address.

    The caller sends the value of the answer in, or throws the error with which the broker has refused it.

    Raises:
        AdapterError: The broker refuses an answer, or gives another than expected.
    """
    address, _, name = place.name.partition("::")
    field, value = ("name", name) if name else ("address", address)
    (listed,) = yield (listing(field, value),)
    try:
        # `dropped_at` needs both.
        return [each for each in queues_in(listed, field, value) if each["address"] and each["name"]]
    except (ValueError, LookupError, TypeError) as error:
        raise AdapterError(
            f"the broker's management answered something else than expected: {error!r}"
        ) from None


def dropped_at(place: Destination, queues: Sequence[Queue], origin: str) -> str:
    """Return why dead letters of the address `origin` may be dropped at a place with these queues; empty: none is.

    A sending link is attached to the place: where Artemis makes missing queues, that has made one.
    """
    address, _, name = place.name.partition("::")
    if not queues and not name and place.kind == "native":
        return f"the address {address} has no queue: {_DROPS}; {_CURE}"
    lost = {_told(each): _lost(each, address, origin) for each in queues}
    # The anycast queues of an address take turns. A filter keeps a queue out, and another one gets the message.
    turns = [each for each in queues if each.get("routingType") == "ANYCAST" and loses(each)]
    if not queues or (not all(lost.values()) and not turns):
        return ""
    told = "; ".join(f"{queue} {why}" for queue, why in lost.items() if why)
    return f"{told}: {_DROPS}; {_CURE}"


def _told(queue: Queue) -> str:
    return f"{queue['address']}::{queue['name']}"


def _lost(queue: Queue, address: str, origin: str) -> str:
    if queue["address"] != address:
        return "has another address"
    if why := loses(queue):
        return why
    condition = takes_only(queue, origin)
    return f"takes only messages with {condition}" if condition else ""

"""Where a dead letter came from: as its broker recorded it, else as the copy that this library made says.

A producer can set every property of its message, and the broker's own poison acknowledgement leaves them as they are. A
redrive acts with an operator's rights: a message must not choose where it is sent. So the broker's record comes first,
and wherever this library makes a copy it writes the property anew.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from redelivery.core.destination import Destination
from redelivery.core.policy.classic_wildcards import is_pattern
from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery.core.delivery import Delivery

__all__ = [
    "CONTROLS",
    "ORIGIN",
    "claimed_origin",
    "comes_with_origin",
    "moved_by_classic",
    "origin_of",
    "overruled",
    "readable_origin",
    "recorded_origin",
]

ORIGIN = "redeliveryOriginalDestination"
"""The property in which a copy says where its message was."""

# Characters: a longer name is nobody's queue.
LONGEST = 1024
_KINDS = ("queue", "topic", "native")
# In a property's name they end it, or its line, over STOMP on Classic.
CONTROLS = re.compile(r"[\x00-\x1f\x7f]")


def readable_origin(text: object) -> str | None:
    """Return a qualified destination that one message can go back to; None for all else.

    One queue, topic or native address, written with its kind. A temporary one is gone with its connection; a pattern or
    a composite is not where one message was; options are nobody's to give.
    """
    if not isinstance(text, str) or len(text) > LONGEST:
        return None
    kind, mark, name = text.partition("://")
    if not mark or kind not in _KINDS:
        return None
    try:
        # It checks the members of what has a comma, too, which only `parse` does.
        parsed = Destination.parse(text)
        # Artemis and RabbitMQ have `#` where Classic has `>`.
        patterned = is_pattern(parsed) or (kind != "native" and "#" in name.split("."))
        one = not patterned and len(parsed.members) == 1
    except ConfigurationError:
        return None
    # With options, or blanks around it, it is not what it says.
    return text if one and (parsed.kind, parsed.name) == (kind, name) else None


def recorded_origin(delivery: Delivery) -> str | None:
    """Return where the broker recorded that a dead letter was; None where it has no record that makes sense."""
    return readable_origin(delivery.origin)


def claimed_origin(delivery: Delivery) -> str | None:
    """Return where a dead letter's own property says that it was; None where it says nothing that makes sense."""
    return readable_origin(delivery.headers.get(ORIGIN))


def origin_of(delivery: Delivery) -> str | None:
    """Return where a dead letter came from, qualified, or None if nobody can be believed.

    Its own property counts only where the broker did not dead-letter it: then who sent it to the dead-letter queue
    wrote the property, which is this library, or somebody with the same rights.
    """
    if delivery.origin is not None or delivery.moved:
        return recorded_origin(delivery)
    return claimed_origin(delivery)


def comes_with_origin(delivery: Delivery) -> bool:
    """True if a message that is alive has what would be taken for its origin once the broker has dead-lettered it.

    Classic leaves properties as they are, over AMQP it shows no record of its own, and over STOMP a property named
    `original-destination` replaces its record; a line end in any name is one there, and begins another header (6.1.7).
    """
    headers = delivery.headers
    record = headers.get("original-destination")
    if ORIGIN in headers or (record is not None and not _handed_over(delivery.destination, record)):
        return True
    return any(CONTROLS.search(str(name)) for name in headers)


def _handed_over(destination: str, record: object) -> bool:
    """True if a virtual topic may have handed the message to its queue: then the broker writes which topic it was.

    With Classic's own names: the queue is `Consumer.<who>.<topic>`.
    """
    if not isinstance(record, str) or not destination.startswith("queue://Consumer."):
        return False
    topic = record.removeprefix("topic://").removeprefix("/topic/")
    _, dot, fed_by = destination.removeprefix("queue://Consumer.").partition(".")
    return topic != record and bool(dot) and fed_by == topic


def moved_by_classic(header: Callable[[str], object]) -> bool:
    """Return whether Classic dead-lettered a message itself: of an expired one it writes a cause of its own.

    A copy has the same cause twice. `header` returns the value of one.
    """
    cause = header("dlqDeliveryFailureCause")
    return cause is not None and cause != header("redeliveryCause")


def overruled(delivery: Delivery) -> bool:
    """Whether the property names another origin than the broker's record, which is believed."""
    claim, record = delivery.headers.get(ORIGIN), recorded_origin(delivery)
    return claim is not None and record is not None and claim != record

"""Original destination of a dead letter: as its broker recorded it, otherwise as the copy of this library says.

A producer can set every property of its message, and the broker's own poison acknowledgement leaves them unchanged. A
redrive acts with an operator's rights: a message must not choose where it is sent. Therefore the broker's record comes
first, and each copy that this library makes has the property written anew.
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
"""Property in which a copy names the original destination of its message."""

# Characters. No queue has a longer name.
LONGEST = 1024
_KINDS = ("queue", "topic", "native")
# Over STOMP on Classic these characters end the line of a property's name.
CONTROLS = re.compile(r"[\x00-\x1f\x7f]")


def readable_origin(text: object) -> str | None:
    """Return a qualified destination that one message can go back to; None for anything else.

    One queue, topic or native address, written with its kind. A temporary one is gone with its connection. One message
    was not in a pattern or a composite. Options do not belong to it.
    """
    if not isinstance(text, str) or len(text) > LONGEST:
        return None
    kind, mark, name = text.partition("://")
    if not mark or kind not in _KINDS:
        return None
    try:
        # Only `parse` also checks the members of a composite.
        parsed = Destination.parse(text)
        # Artemis and RabbitMQ use `#` where Classic uses `>`.
        patterned = is_pattern(parsed) or (kind != "native" and "#" in name.split("."))
        one = not patterned and len(parsed.members) == 1
    except ConfigurationError:
        return None
    # With options, or blanks around it, the text differs from what was parsed.
    return text if one and (parsed.kind, parsed.name) == (kind, name) else None


def recorded_origin(delivery: Delivery) -> str | None:
    """Return the original destination that the broker recorded; None without a usable record."""
    return readable_origin(delivery.origin)


def claimed_origin(delivery: Delivery) -> str | None:
    """Return the original destination that the dead letter's own property names; None without a usable value."""
    return readable_origin(delivery.headers.get(ORIGIN))


def origin_of(delivery: Delivery) -> str | None:
    """Return the original destination of a dead letter, qualified; None if no source of it can be trusted.

    Its own property counts only if the broker did not dead-letter it. Then the sender to the dead-letter queue wrote
    the property: this library, or a client with the same rights.
    """
    if delivery.origin is not None or delivery.moved:
        return recorded_origin(delivery)
    return claimed_origin(delivery)


def comes_with_origin(delivery: Delivery) -> bool:
    """True if a live message has properties that would be taken for its origin once the broker has dead-lettered it.

    Classic leaves properties unchanged. Over AMQP it shows no record of its own. Over STOMP a property named
    `original-destination` replaces its record, and a line end in any name begins another header (6.1.7).
    """
    headers = delivery.headers
    if ORIGIN in headers or "original-destination" in headers:
        return True
    return any(CONTROLS.search(str(name)) for name in headers)


def moved_by_classic(header: Callable[[str], object]) -> bool:
    """Return True if Classic dead-lettered a message itself: it writes a cause of its own, also for an expired one.

    A copy has the same cause in two headers. `header` returns the value of one.
    """
    cause = header("dlqDeliveryFailureCause")
    return cause is not None and cause != header("redeliveryCause")


def overruled(delivery: Delivery) -> bool:
    """Return True if the property names another origin than the broker's record, which is used."""
    claim, record = delivery.headers.get(ORIGIN), recorded_origin(delivery)
    return claim is not None and record is not None and claim != record

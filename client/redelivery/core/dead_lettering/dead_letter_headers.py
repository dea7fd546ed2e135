"""Headers of dead letters: written by this library or by a broker, and those that no copy may carry."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from redelivery.core.cause import CAUSE_LIMIT
from redelivery.core.destination import Destination
from redelivery.core.policy.wildcards import is_pattern
from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from redelivery.core.delivery import Delivery

__all__ = [
    "CONTROLS",
    "COPY_ID",
    "DUPLICATE_ID",
    "ORIGIN",
    "comes_with_origin",
    "count_in",
    "moment",
    "moved_by_classic",
    "never_copied",
    "origin_of",
    "overruled",
    "readable_origin",
    "recorded_origin",
    "text_in",
    "time_in",
    "without_copy_id",
]


# ---- Header values ---------------------------------------------------------------------------------------
# Properties of a dead letter as this library writes them; None for a value that another producer has written there.
#
# Every producer can set these properties, to values of any type and size. No reader raises: an absurd value counts
# as absent, and the dead letter can still be shown, redriven and purged.

# Digits of a count that is read as a number: Python refuses more than 4,300, and no broker's counter reaches 19.
DIGITS = 18


def text_in(headers: Mapping[str, Any], name: str) -> str | None:
    """Return a text property, cut to the length of a cause; otherwise None."""
    value = headers.get(name)
    return value[:CAUSE_LIMIT] if isinstance(value, str) and value else None


def count_in(headers: Mapping[str, Any], name: str) -> int | None:
    """Return a property that is a whole number of 0 or more, as a number or as text; otherwise None."""
    value = headers.get(name)
    if isinstance(value, str):
        return int(value) if value.isascii() and value.isdigit() and len(value) <= DIGITS else None
    if isinstance(value, float):
        # Excludes infinity and NaN.
        value = int(value) if value.is_integer() else None
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value < 10**DIGITS else None


def time_in(headers: Mapping[str, Any], name: str) -> datetime | None:
    """Return a property that is an ISO 8601 time, in UTC; otherwise None."""
    value = headers.get(name)
    if not isinstance(value, str):
        return None
    try:
        at = datetime.fromisoformat(value)
        return at.astimezone(UTC) if at.tzinfo is not None else at.replace(tzinfo=UTC)
    # `0001-01-01T00:00:00+23:59` is before Python's first day.
    except (ValueError, OverflowError):
        return None


def moment(seconds: float | None) -> datetime | None:
    """Return seconds since the Unix epoch as a time in UTC; None if there is none, or no such time."""
    try:
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None


# ---- Origin ----------------------------------------------------------------------------------------------
# Original destination of a dead letter: as its broker recorded it, otherwise as the copy of this library says.
#
# A producer can set every property of its message, and the broker's own poison acknowledgement leaves them
# unchanged. A redrive acts with an operator's rights: a message must not choose where it is sent. Therefore the
# broker's record comes first, and each copy that this library makes has the property written anew.

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


# ---- Broker marks ----------------------------------------------------------------------------------------
# Properties that a broker acts on, or has written about a message: no copy of the message may carry them.

T = TypeVar("T")


# Begin of a copy's duplicate id. Artemis confirms a second message with the same id, and drops it.
COPY_ID = "redelivery:"
DUPLICATE_ID = "_AMQ_DUPL_ID"

# With these properties a broker would schedule, count, type or drop a copy as it did the original.
NEVER_COPIED = frozenset({
    "AMQ_SCHEDULED_CRON", "AMQ_SCHEDULED_DELAY", "AMQ_SCHEDULED_PERIOD", "AMQ_SCHEDULED_REPEAT", "AMQ_SCHEDULED_TIME",
    "JMSDeliveryMode", "JMSDestination", "JMSExpiration", "JMSMessageID", "JMSPriority", "JMSRedelivered",
    "JMSTimestamp", "JMSXDeliveryCount", "JMSXGroupID", "JMSXGroupSeq", "JMSXUserID", "_AMQ_ACTUAL_EXPIRY",
    "_AMQ_DUPL_ID", "_AMQ_GROUP_ID", "_AMQ_GROUP_SEQUENCE", "_AMQ_LARGE_SIZE", "_AMQ_ROUTING_TYPE",
    "_AMQ_SCHED_DELIVERY", "__AMQ_CID", "expiration", "original-destination", "originalExpiration", "redeliveryDelay",
    "scheduledJobId", "x-death",
})  # fmt: skip
# OpenWire's own headers on Artemis; those of an earlier dead letter on Artemis (annotations to an AMQP client) and on
# RabbitMQ. Two kinds of annotations are text on a copy, and not what a reader needs: those that Artemis shows as
# `[B@4fec…`, and delivers to no AMQP client then; and the numbers of Qpid JMS, which drops a message with a text there.
NEVER_COPIED_PREFIXES = (
    "__HDR_", "_AMQ_ORIG_", "JMS_AMQP_MA_x-opt-ORIG-", "x-first-death-", "x-last-death-", "JMS_AMQP_ENCODED_",
    "JMS_AMQP_MA_x-opt-jms-",
)  # fmt: skip


def never_copied(name: str) -> bool:
    """Return True if no copy of a message may have this property, whichever broker it goes to."""
    return name in NEVER_COPIED or name.startswith(NEVER_COPIED_PREFIXES)


def without_copy_id(headers: dict[str, T]) -> dict[str, T]:
    """Return the properties that an application gives a message, without the duplicate id of a copy of this library's.

    They can be those of a message that was redriven, or exported: the broker would drop all but the first of them.
    """
    if not str(headers.get(DUPLICATE_ID, "")).startswith(COPY_ID):
        return headers
    return {name: value for name, value in headers.items() if name != DUPLICATE_ID}

"""Properties that a broker acts on, or has written about a message: no copy of the message may carry them."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")

__all__ = ["COPY_ID", "NEVER_COPIED", "NEVER_COPIED_PREFIXES", "never_copied", "without_copy_id"]

# Begin of a copy's duplicate id. Artemis confirms a second message with the same id, and drops it.
COPY_ID = "redelivery:"
_DUPLICATE = "_AMQ_DUPL_ID"

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
    if not str(headers.get(_DUPLICATE, "")).startswith(COPY_ID):
        return headers
    return {name: value for name, value in headers.items() if name != _DUPLICATE}

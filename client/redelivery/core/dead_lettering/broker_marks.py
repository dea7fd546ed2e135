"""Properties that a broker acts on, or has written about a message: no copy of the message may carry them."""

from __future__ import annotations

__all__ = ["NEVER_COPIED", "NEVER_COPIED_PREFIXES", "never_copied"]

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

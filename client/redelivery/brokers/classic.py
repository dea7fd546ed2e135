"""ActiveMQ Classic."""

from __future__ import annotations

from redelivery.brokers.facts import Broker
from redelivery.core.capabilities import Capabilities

__all__ = ["CLASSIC"]

CLASSIC = Broker(
    ("5.18.6", "6.1.7", "6.3.1"),
    Capabilities(
        broker="activemq",
        poison_persistent=True,
        transactions=True,
        # maxPageSize: the queue stalls at this number of unacknowledged messages.
        max_unacknowledged=200,
        dead_letter_destination="queue://ActiveMQ.DLQ",
        individual_prefixes=("ActiveMQ.DLQ.Queue.", "ActiveMQ.DLQ.Topic."),
        browse=True,
        # maxBrowsePageSize.
        browse_limit=400,
        # Not in a transaction: the broker hands a delayed message to its scheduler after it has written the commit.
        reschedule="confirmed",
        reschedule_needs="schedulerSupport=true in its configuration",
    ),
)

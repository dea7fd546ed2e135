"""Qpid Broker-J."""

from __future__ import annotations

from redelivery.brokers.facts import Broker
from redelivery.core.capabilities import Capabilities

__all__ = ["BROKER_J"]

BROKER_J = Broker(
    ("9.1.0", "9.2.0", "10.1.0"),
    Capabilities(
        broker="qpid-broker-j",
        # messageGroupType of a queue is NONE by default.
        binds_groups=False,
        queue_wildcards=False,
        dead_letter_destination="queue://DLQ",
        reschedule_needs="holdOnPublishEnabled on its queues, and a clock that agrees with this machine's",
    ),
)

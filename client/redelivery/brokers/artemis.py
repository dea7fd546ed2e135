"""ActiveMQ Artemis."""

from __future__ import annotations

from redelivery.brokers.facts import Broker
from redelivery.core.capabilities import Capabilities

__all__ = ["ARTEMIS"]

ARTEMIS = Broker(
    ("2.31.2", "2.40.0", "2.56.0"),
    Capabilities(
        broker="artemis",
        duplicate_property="_AMQ_DUPL_ID",
        # After the end of a connection by FIN, not by RST, it marks 1 of 20 messages over STOMP, and none over AMQP.
        marks=False,
        copies_by_wildcard=True,
        management_address="activemq.management",
        tells_dead_letters=True,
        dead_letter_destination="queue://DLQ",
    ),
)

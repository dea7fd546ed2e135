"""RabbitMQ."""

from __future__ import annotations

from redelivery.brokers.facts import Broker
from redelivery.core.capabilities import Capabilities

__all__ = ["CONSUMER_TIMEOUT", "DELIVERY_LIMIT", "QUORUM_OPTIONS", "RABBITMQ"]

CONSUMER_TIMEOUT = 1800.0
"""Seconds for which a consumer may keep a message unsettled: the default of `consumer_timeout`."""
DELIVERY_LIMIT = 20
"""Default delivery limit of a quorum queue since 4.0."""
QUORUM_OPTIONS = (
    "redelivery.scheduler=broker&redelivery.queueArguments=x-queue-type:quorum,x-delivery-limit:-1,x-consumer-disconnected-timeout:3000"
    "&redelivery.deadLetterArguments=x-queue-type:quorum"
)
"""Options that make new queues on 4.3 quorum queues; docs/brokers.md recommends them."""

RABBITMQ = Broker(
    ("3.10.8", "4.0.5", "4.3.6"),
    Capabilities(
        broker="rabbitmq",
        # A rejected message goes to the dead-letter exchange; without one it is dropped.
        poison_on_request=True,
        ack_caution=(
            "redelivery.deadLetter=ack: RabbitMQ drops a poison message of a queue without a dead-letter exchange; "
            "give the queue one, or use auto"
        ),
        # Quorum queues count releases, up to their delivery limit; before 4.3, which alone reports the type of a queue.
        release_counts=True,
        # It ignores selectors and groups: every message arrives, at any consumer.
        selectors=False,
        binds_groups=False,
        queue_wildcards=False,
        # After its consumer_timeout the broker takes messages back: it ends the session, or closes the connection.
        max_hold=CONSUMER_TIMEOUT,
        dead_letter_destination="queue://DLQ",
    ),
)

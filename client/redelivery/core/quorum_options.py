"""Options that make new queues on RabbitMQ 4.3 quorum queues; docs/brokers.md recommends them."""

from __future__ import annotations

__all__ = ["QUORUM_OPTIONS"]

QUORUM_OPTIONS = (
    "redelivery.scheduler=broker&redelivery.queueArguments=x-queue-type:quorum,x-delivery-limit:-1,x-consumer-disconnected-timeout:3000"
    "&redelivery.deadLetterArguments=x-queue-type:quorum"
)

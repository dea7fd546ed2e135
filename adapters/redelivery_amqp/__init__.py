"""AMQP 1.0 through python-qpid-proton: ActiveMQ Classic, ActiveMQ Artemis, Qpid Broker-J and RabbitMQ."""

from __future__ import annotations

from redelivery_amqp.adapter import AmqpAdapter

__all__ = ["AmqpAdapter"]

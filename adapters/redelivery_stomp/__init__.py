"""STOMP 1.2 and 1.1 through stomp.py: ActiveMQ Classic, ActiveMQ Artemis and RabbitMQ."""

from __future__ import annotations

from redelivery_stomp.adapter import StompAdapter

__all__ = ["StompAdapter"]

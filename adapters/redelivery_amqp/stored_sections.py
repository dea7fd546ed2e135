"""Deliveries restored from the stored sections of a message, without a connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.adapter_support.wire_log import values_of
from redelivery.core.commands import Subscribe
from redelivery_amqp.delivery import AmqpDelivery
from redelivery_amqp.profiles import named_profile
from redelivery_amqp.receiver import ReceiverLink

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redelivery.adapter import Restore

__all__ = ["section_restorer", "section_wire"]


def section_wire(broker: str, version: str, destination: str) -> dict[str, str]:
    """Return what `section_restorer` needs: the broker, its version, and the subscribed destination."""
    return {"broker": broker, "version": version, "destination": destination}


def section_restorer(wire: Mapping[str, str]) -> Restore:
    """Return a function that restores deliveries of a subscription.

    Raises:
        ConfigurationError: There is no profile of that name, or a value is missing.
    """
    broker, version, destination = values_of(wire, "broker", "version", "destination")
    profile = named_profile(broker, version)
    source = ReceiverLink(Subscribe(0, destination, window=1), 0, profile, lambda _: None)

    def restore(head: bytes, body: bytes | None, arrived: float) -> AmqpDelivery:
        return AmqpDelivery(source, head if body is None else head + body, None, 0, arrived)

    return restore

"""Deliveries from the header block and the body of a MESSAGE, without a connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from redelivery.adapter_support.wire_values import values_of
from redelivery.core.commands import Subscribe
from redelivery_stomp.delivery import Subscription
from redelivery_stomp.profiles import profile_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redelivery.adapter import Restore
    from redelivery.settings import BrokerName
    from redelivery_stomp.delivery import StompDelivery

__all__ = ["frame_restorer", "frame_wire"]


def frame_wire(broker: str, version: str, destination: str) -> dict[str, str]:
    """Return what `frame_restorer` needs: the profile's broker, the version of STOMP, and what was subscribed to."""
    return {"broker": broker, "version": version, "destination": destination}


def frame_restorer(wire: Mapping[str, str]) -> Restore:
    """Return a function that makes deliveries of a subscription.

    Raises:
        ConfigurationError: no profile is of that name, or a value is missing.
    """
    broker, version, destination = values_of(wire, "broker", "version", "destination")
    profile = profile_for("", cast("BrokerName", broker))
    source = Subscription(Subscribe(0, destination, window=1), 0, profile, version)
    make = source.make

    def restore(head: bytes, body: bytes | None, arrived: float) -> StompDelivery:
        delivery = make(source, head, b"" if body is None else body)
        delivery.arrived_at(arrived)
        return delivery

    return restore

"""Deliveries made from a stored header block and body of a MESSAGE, without a connection."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

from redelivery.adapter_support.wire_values import values_of
from redelivery.core.commands import Subscribe
from redelivery_stomp.delivery import Subscription
from redelivery_stomp.even_frames import even_columns
from redelivery_stomp.profiles import profile_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redelivery.adapter import Restore
    from redelivery.core.head_columns import ReadColumns
    from redelivery.settings import BrokerName
    from redelivery_stomp.delivery import StompDelivery

__all__ = ["frame_columns", "frame_restorer", "frame_wire"]


def frame_wire(broker: str, version: str, destination: str) -> dict[str, str]:
    """Return the values that `frame_restorer` needs: broker, version of STOMP, and consumed destination."""
    return {"broker": broker, "version": version, "destination": destination}


def frame_restorer(wire: Mapping[str, str]) -> Restore:
    """Return a function that makes deliveries of a subscription.

    Raises:
        ConfigurationError: The broker has no profile, or a value is missing.
    """
    source = _source(wire)
    make = source.make

    def restore(head: bytes, body: bytes | None, arrived: float) -> StompDelivery:
        delivery = make(source, head, b"" if body is None else body)
        delivery.arrived_at(arrived)
        return delivery

    return restore


def frame_columns(wire: Mapping[str, str]) -> ReadColumns:
    """Return a function that reads header blocks of a subscription, column by column.

    Raises:
        ConfigurationError: The broker has no profile, or a value is missing.
    """
    return partial(even_columns, _source(wire))


def _source(wire: Mapping[str, str]) -> Subscription:
    broker, version, destination = values_of(wire, "broker", "version", "destination")
    profile = profile_for("", cast("BrokerName", broker))
    return Subscription(Subscribe(0, destination, window=1), 0, profile, version)

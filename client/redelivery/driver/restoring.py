"""Restoring of deliveries from stored bytes, by the adapter that received them, without a connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.adapter import Restoring
from redelivery.core.head_columns import ColumnReading
from redelivery.errors import ConfigurationError, TransportError
from redelivery.registry import adapter_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redelivery.adapter import Adapter, Restore
    from redelivery.core.head_columns import ReadColumns

__all__ = ["SCHEME", "column_reader", "restorer", "wire_of"]

SCHEME = "scheme"
"""Key of a wire whose value names the adapter."""


def wire_of(adapter: Adapter, scheme: str, destination: str) -> dict[str, str]:
    """Return how the deliveries of a subscription on the open connection are read.

    Raises:
        ConfigurationError: The adapter cannot restore deliveries.
        TransportError: There is no connection.
    """
    found = _restoring(adapter, scheme).wire(destination)
    if found is None:
        raise TransportError(f"not connected: how {destination} is read is not known yet")
    return {SCHEME: scheme, **found}


def restorer(wire: Mapping[str, str]) -> Restore:
    """Return a function that makes deliveries from the result of `Delivery.stored`. No I/O, no connection.

    The function takes the head, the body (None: it is in the head) and the time of the arrival in seconds since the
    Unix epoch. A restored delivery has all properties of the original, but `epoch` 0 and `consumer` 0: it cannot be
    settled at a broker.

    Args:
        wire: The result of `ConsumerPort.wire`.

    Raises:
        ConfigurationError: The scheme's package is missing, or the wire is not of its adapter.
    """
    scheme = _scheme(wire)
    return _restoring(adapter_for(scheme), scheme).restorer(wire)


def column_reader(wire: Mapping[str, str]) -> ReadColumns | None:
    """Return a function that reads the heads of many deliveries at once; None: the adapter has none. No I/O.

    Args:
        wire: The result of `ConsumerPort.wire`.

    Raises:
        ConfigurationError: The scheme's package is missing, or the wire is not of its adapter.
    """
    adapter = adapter_for(_scheme(wire))
    return adapter.column_reader(wire) if isinstance(adapter, ColumnReading) else None


def _scheme(wire: Mapping[str, str]) -> str:
    scheme = wire.get(SCHEME)
    if scheme is None:
        raise ConfigurationError(f"a wire without {SCHEME!r}: it was not made by ConsumerPort.wire()")
    return scheme


def _restoring(adapter: Adapter, scheme: str) -> Restoring:
    if not isinstance(adapter, Restoring):
        raise ConfigurationError(
            f"the adapter for {scheme}:// cannot restore deliveries: it has no wire() and restorer()"
        )
    return adapter

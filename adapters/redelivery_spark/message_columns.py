"""Columns of messages, as a segment of a stream, a browsed queue and a drain show them."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

import pyarrow as pa

from redelivery_spark.schema import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redelivery.core.delivery import Delivery

__all__ = ["message_column"]

_TYPES = {field.name: field.type for field in COLUMNS}


def message_column(name: str, deliveries: Sequence[Delivery]) -> pa.Array:
    """Return a column of messages: any of `schema.COLUMNS` but `message_id` and `delivery_count`.

    Args:
        name: Name of the column.
        deliveries: The messages, one for each row. They still have their bodies.
    """
    if name == "properties":
        return _properties(deliveries)
    return pa.array(list(map(attrgetter(name), deliveries)), _TYPES[name])


def _properties(deliveries: Sequence[Delivery]) -> pa.Array:
    keys: list[str] = []
    values: list[str | None] = []
    ends = [0]
    for delivery in deliveries:
        for key, value in delivery.headers.items():
            keys.append(key)
            values.append(value if isinstance(value, str) else _text(value))
        ends.append(len(keys))
    offsets, names = pa.array(ends, pa.int32()), pa.array(keys, pa.string())
    found: pa.Array = pa.MapArray.from_arrays(offsets, names, pa.array(values, pa.string()))
    return found


def _text(value: object) -> str | None:
    """Return a property that is not text as text."""
    if value is None or isinstance(value, bool):
        return None if value is None else str(value).lower()
    return value.hex() if isinstance(value, bytes) else str(value)

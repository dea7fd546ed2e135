"""Rows of the log, made of messages that a consumer takes from a memory broker."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from redelivery.driver.port import BulkIntake, ConnectionPort, ConsumerHooks
from redelivery_spark.stream.engine_driver import StoredRow
from redelivery_spark.wal.places import place

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redelivery.core.delivery import Delivery
    from redelivery.testing import MemoryBroker

__all__ = ["sent", "stored_row"]


def sent(broker: MemoryBroker, *bodies: str, **told: Any) -> tuple[list[Delivery], Mapping[str, str]]:
    """Send messages, and take and accept them; return them, and their wire."""
    for body in bodies:
        broker.send("orders", body, **told)
    with ConnectionPort(broker.uri) as port:
        bulk = BulkIntake(port.clock)
        consumer = port.subscribe(port.plan("orders", {}), ConsumerHooks(bulk=bulk))
        found = bulk.take(len(bodies), 1 << 30, 0.0)
        consumer.accept_bulk(found)
        return found, consumer.wire()


def stored_row(broker: MemoryBroker, body: str, *, row: int = 0, **told: Any) -> StoredRow:
    """Return the row of a sent message: of segment 1 of lane 1."""
    (delivery,), wire = sent(broker, body, **told)
    return StoredRow(place(1, 0, 1, row), *delivery.stored(), json.dumps(dict(wire), sort_keys=True), 5.0)

"""Deliveries of the memory broker, restored from the bytes that `MemoryDelivery.stored` returned."""

from __future__ import annotations

import json
from typing import Any

from redelivery.core.outgoing import Outgoing
from redelivery_memory.messages import MemoryDelivery, StoredMessage
from redelivery_memory.queues import Queue

__all__ = ["restored"]


def restored(head: bytes, body: bytes | None, arrived: float) -> MemoryDelivery:
    """Return a delivery without a consumer. Its properties do not depend on `arrived`."""
    del arrived
    known: dict[str, Any] = json.loads(head)
    fields: dict[str, Any] = {**known["message"], "body": body or b""}
    message = Outgoing(**fields)
    stored = StoredMessage(known["broker_id"], known["number"], message, known["timestamp"])
    stored.count, stored.notes = known["count"], known["notes"]
    return MemoryDelivery(0, 0, Queue(known["queue"], known["address"]), stored)

"""Deliveries of the memory broker that are restored from stored bytes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from tests.restored import again, shown_by

from redelivery.core.outgoing import Outgoing
from redelivery.driver.port import restorer
from redelivery_memory.messages import MemoryDelivery, StoredMessage
from redelivery_memory.queues import Queue

if TYPE_CHECKING:
    from redelivery.core.delivery import BodyKind

VALUES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9)
KINDS: tuple[BodyKind, ...] = ("text", "bytes", "unknown", "partial")


@given(
    body=st.binary(max_size=20),
    headers=st.dictionaries(st.text(max_size=9), VALUES, max_size=4),
    kind=st.sampled_from(KINDS),
    expires=st.none() | st.floats(0, 2e9),
    group=st.none() | st.text(max_size=3),
    count=st.integers(0, 3),
)
def test_a_stored_message_is_restored(
    body: bytes,
    headers: dict[str, object],
    kind: BodyKind,
    expires: float | None,
    group: str | None,
    count: int,
) -> None:
    """The head of a stored message is JSON; every property of the restored delivery is that of the original."""
    sent = Outgoing("queue://orders", body, kind, headers, "text/plain", "c", None, "t", 7, group, expires)
    stored = StoredMessage("ID:x-1", 5, sent, 1_700_000_000.25)
    stored.count, stored.notes = count, {"redeliveryCount": 2}
    delivery = MemoryDelivery(3, 7, Queue("a subscription", "topic://news"), stored)
    head, _ = delivery.stored()
    assert json.loads(head)["queue"] == "a subscription"
    restored = again(restorer({"scheme": "memory"}), delivery, 0.0)
    assert shown_by(restored) == shown_by(delivery)

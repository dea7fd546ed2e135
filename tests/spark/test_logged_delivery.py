"""A row of the log as the engine takes it: the original message, identified by its place."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.spark.stored import stored_row

from redelivery.core.delivery import Record
from redelivery.errors import ConfigurationError
from redelivery_spark.stream.engine_driver import LoggedDelivery, restored

if TYPE_CHECKING:
    from redelivery.testing import MemoryBroker

TOLD = (
    "identity", "destination", "origin", "moved", "died_of", "redelivered", "expires_at", "group", "persistent",
    "body_kind", "readable", "message_id", "noted", "headers", "content_type", "correlation_id", "reply_to",
    "message_type", "priority", "timestamp", "expiration", "body",
)  # fmt: skip


def test_it_says_what_its_message_says(redelivery_broker: MemoryBroker) -> None:
    """A row has all properties that a dead letter of the message needs."""
    row = stored_row(
        redelivery_broker,
        "text",
        headers={"a": 1},
        correlation_id="c",
        priority=7,
        expires_at=10**10,
        group="g",
    )
    delivery, message = LoggedDelivery(row), restored(row)
    for name in TOLD:
        assert getattr(delivery, name) == getattr(message, name), name
    assert (delivery.headers, delivery.correlation_id, delivery.priority) == ({"a": 1}, "c", 7)


def test_it_is_known_by_its_place(redelivery_broker: MemoryBroker) -> None:
    """Two rows of equal messages are different: their ids do not count."""
    one = stored_row(redelivery_broker, "same")
    two = replace(one, place=one.place + 1)
    first, second = LoggedDelivery(one), LoggedDelivery(two)
    assert first.identity == second.identity
    assert (first.key, second.key) == (one.place, two.place)
    assert first.strong
    assert not first.original


def test_its_next_delivery_has_the_next_count(redelivery_broker: MemoryBroker) -> None:
    """The count of the next delivery is 1 at first, and one more after each failure."""
    delivery = LoggedDelivery(stored_row(redelivery_broker, "x"))
    assert delivery.count == 1
    delivery.record = Record()
    delivery.record.count = 2
    assert delivery.count == 3


def test_a_protocol_that_is_not_installed_is_named(redelivery_broker: MemoryBroker) -> None:
    """A log from elsewhere that needs a missing package is refused with its name."""
    row = replace(stored_row(redelivery_broker, "x"), wire=json.dumps({"scheme": "nowhere"}))
    with pytest.raises(ConfigurationError, match="nowhere"):
        LoggedDelivery(row)

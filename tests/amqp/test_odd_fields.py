"""Fields and properties with impossible types or values: they are absent."""

from __future__ import annotations

import json

import pytest
from tests.amqp.test_delivery import delivery
from tests.amqp.test_pills import BODY, asked, copy_of_it, one_entry, section

from redelivery_amqp.profiles import AmqpClassic


@pytest.mark.parametrize("to", [
    "queue://", "queue:// ", "queue://a\nb", "temp-queue://x", "queue://a,queue://b", "\0",
])  # fmt: skip
def test_a_destination_that_makes_no_sense_is_the_subscriptions(to: str) -> None:
    """A `to` that cannot be parsed is ignored: the destination is that of the subscription."""
    made = delivery(section(0x73, b"\xc0" + bytes([len(to) + 5, 3]) + b"\x40\x40\xa1" + bytes([len(to)]) + to.encode())
                    + BODY, "queue://shop.>", AmqpClassic())  # fmt: skip
    assert made.destination == "queue://shop.>"


@pytest.mark.parametrize(("header", "priority"), [
    (b"\xc0\x04\x02AQ\xff", 0), (b"\xc0\x04\x02AP\xff", 9), (b"\xc0\x03\x02AA", 4),
])  # fmt: skip
def test_a_priority_that_makes_no_sense(header: bytes, priority: int) -> None:
    """A priority out of range is limited to 0 to 9, also in the dead letter."""
    assert copy_of_it(delivery(section(0x70, header) + BODY)).priority == priority


@pytest.mark.parametrize(
    "data",
    [b"\0Sp\xc0\0", b"\0Sp\xc0\0" + BODY, b"\0Sp\x45", b"\0Ss\xc0\0", b"\0St\xc1\0", b"\0Sp\xd0\0\0\0\0"],
)
def test_a_list_with_no_room_for_its_count(data: bytes) -> None:
    """A section whose bytes cannot hold its count can be read, and the message copied."""
    asked(delivery(data))
    asked(copy_of_it(delivery(data)))


def test_a_boolean_is_no_number() -> None:
    """A boolean in the place of a number is absent."""
    found = delivery(
        section(0x70, b"\xc0\x06\x05\x41\x41\x40\x40\x41") + section(0x73, b"\xc0\x02\x01\x41") + BODY
    )
    assert (found.priority, found.broker_count, found.key, found.persistent) == (4, 0, None, True)
    assert copy_of_it(found).priority == 4


def test_a_property_is_what_json_can_say() -> None:
    """A property that is a map, which the standard forbids, is shown with text keys that JSON can write."""
    found = delivery(
        section(0x74, one_entry(b"\xa1\x01k", b"\xc1\x08\x04\xa0\x01\xff\x40\x54\x02\x45")) + BODY
    )
    assert found.headers == {"k": {"b'\\xff'": None, "2": []}}
    assert json.dumps(dict(found.headers))


@pytest.mark.parametrize("expiry", [2**63 - 1, -(2**63)])
def test_a_time_that_no_calendar_has(expiry: int) -> None:
    """A message whose expiry is beyond the calendar can be read and copied."""
    times = b"\x40" * 8 + b"\x83" + expiry.to_bytes(8, "big", signed=True)
    data = (
        section(0x70, b"\xc0\x05\x03@@\x52\x01")
        + section(0x73, b"\xc0" + bytes([len(times) + 1, 9]) + times)
        + BODY
    )
    found = delivery(data)
    asked(found)
    assert copy_of_it(found).body == b"body"

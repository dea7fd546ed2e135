"""Malformed messages: they are shown as far as they can be read, and never lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import example, given
from hypothesis import strategies as st
from tests.amqp.peer import proton
from tests.amqp.test_delivery import AT, delivery

from redelivery.core.commands import Forward
from redelivery.core.dead_lettering.routing import WHOLE
from redelivery.core.delivery import Cause
from redelivery.core.outgoing import Outgoing
from redelivery_amqp.message_copies import copied
from redelivery_amqp.profiles import AmqpArtemis

if TYPE_CHECKING:
    from redelivery_amqp.delivery import AmqpDelivery

SHOWN = (
    "body", "body_kind", "broker_count", "content_encoding", "content_type", "correlation_id", "destination",
    "expiration", "expires_at", "group", "headers", "key", "message_id", "message_type", "persistent", "priority",
    "redelivered", "reply_to", "timestamp", "value",
)  # fmt: skip
CODES = [0x00, 0x40, 0x45, 0x53, 0x56, 0xA0, 0xA1, 0xA3, 0xB0, 0xC0, 0xC1, 0xD0, 0xD1, 0xFF]


def sample(body: Any) -> bytes:
    """Return a message with something in each section."""
    made = proton.Message(body=body, id="id", subject="kind", reply_to="answers", durable=True, ttl=5.0)
    made.properties = {"text": "x", "number": 7, "redeliveryId": "ours"}
    made.annotations = {proton.symbol("x-opt-jms-reply-to"): proton.byte(1)}
    made.correlation_id, made.content_type, made.group_id, made.creation_time = "c", "text/plain", "g", AT
    made.delivery_count, made.inferred = 2, isinstance(body, bytes)
    return bytes(made.encode())


SAMPLES = [sample(b"body"), sample("body"), sample({"a": [1]}), sample(None)]
CHANGES = st.lists(
    st.tuples(st.integers(0, 400), st.one_of(st.sampled_from(CODES), st.integers(0, 255))), max_size=4
)


@st.composite
def garbled(draw: st.DrawFn) -> bytes:
    """Return a message with a few wrong bytes, or cut off."""
    data = bytearray(draw(st.sampled_from(SAMPLES)))
    for at, byte in draw(CHANGES):
        data[at % len(data)] = byte
    return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data)


def copy_of(original: AmqpDelivery) -> AmqpDelivery:
    """Return its dead letter."""
    headers = {**original.headers, "redeliveryCause": "ValueError"}
    copy = Outgoing("queue://DLQ", original.body, original.body_kind, headers, priority=original.priority)
    return delivery(
        copied(Forward(original, copy, Cause("ValueError"), 1), original, AmqpArtemis(), AT), "queue://DLQ"
    )


@given(st.one_of(garbled(), st.binary(max_size=80)))
@example(b"")
@example(b"\0Sw" + b"\0" * 5000)  # a description of a description of a description …
@example(b"\0Su\xa1\x01x")  # a data section that is not binary
@example(b"\0Sp\xc0")
@example(sample(b"body").replace(b"\0St", b"\0Sp"))  # a second header in the place of the properties
def test_no_message_breaks_its_connection_or_loses_a_byte(data: bytes) -> None:
    """A malformed message can be read without an error; its dead letter has the body, or all bytes."""
    found = delivery(data)
    for name in SHOWN:
        getattr(found, name)
    hash(found.key)
    copy = copy_of(found)
    assert copy.body == (found.body if found.readable else data)
    # The handler saw less than the dead letter has. The dead letter says so; a redrive would change the message.
    assert (copy.headers.get(WHOLE) == "false") == (not found.readable and bool(found.places))


def test_a_copy_of_what_cannot_be_decoded_has_it_as_it_came() -> None:
    """A property that is not UTF-8 is hidden from the application, and copied unchanged to the dead letter."""
    data = sample(b"body").replace(b"\xa1\x01x", b"\xa1\x01\xff")
    found = delivery(data)
    assert (found.body, found.message_id) == (b"body", "id")
    assert found.headers == {"number": 7, "redeliveryId": "ours"}
    copy = copy_of(found)
    assert b"\xa1\x04text\xa1\x01\xff" in copy.raw
    assert (copy.body, copy.correlation_id, copy.content_type) == (b"body", "c", "text/plain")
    assert copy.headers == {
        **found.headers,
        "redeliveryCause": "ValueError",
        "_AMQ_ORIG_ADDRESS": "orders",
        "_AMQ_ORIG_QUEUE": "orders",
    }


def test_fields_of_impossible_types_are_absent() -> None:
    """A priority that is text, or a reply address that is a number, is absent."""
    data = b"\0Sp\xc0\x05\x02@\xa1\x01x\0Ss\xc0\x07\x05@@@@R\x07\0Su\xa0\x01b"
    found = delivery(data)
    assert (found.body, found.priority, found.reply_to) == (b"b", 4, None)

"""Dead letters of AMQP producers in an export: what its fields do not keep is named, and is not sent again."""

from __future__ import annotations

import gzip
import uuid
from typing import Any

import proton
import pytest
from tests.amqp.test_delivery import delivery, message

from redelivery.dlq.dead_letter import read_letter
from redelivery.dlq.export import row_of


def jms(kind: int) -> dict[object, object]:
    """Annotations of a message of a JMS client."""
    return {proton.symbol("x-opt-jms-msg-type"): proton.byte(kind)}


@pytest.mark.parametrize(
    ("body", "fields", "lossy"),
    [
        ("text", {}, ""),
        (b"bytes", {"annotations": jms(3), "properties": {"a": "b", "n": 1, "yes": True, "none": None}}, ""),
        ({"price": 7}, {"annotations": jms(2), "inferred": False}, "a body that is a JMS Map"),
        (b"\xac\xed\0\5", {"annotations": jms(1)}, "a body that is a JMS Object"),
        ([1, "a"], {"annotations": jms(4)}, "a body that is a JMS Stream"),
        (None, {"annotations": jms(0), "inferred": False}, "a body that is a JMS Message"),
        ({"price": 7}, {"inferred": False}, "a body that is a value of AMQP"),
        (gzip.compress(b"hello", mtime=0), {"content_encoding": "gzip"}, "content-encoding gzip"),
        ("text", {"correlation_id": uuid.UUID(int=5), "inferred": False}, "a correlation id that is a UUID"),
        (b"x", {"properties": {"b": b"\1\xff"}}, "the property b, a bytes"),
        (b"x", {"properties": {"u": uuid.UUID(int=1)}}, "the property u, a UUID"),
    ],
)
def test_what_a_line_does_not_keep(body: Any, fields: dict[str, Any], lossy: str) -> None:
    """Bodies that are neither text nor bytes, their compression, and values that JSON has not."""
    letter = read_letter(delivery(message(body, **fields)), "queue://DLQ")
    assert letter.lossy == lossy
    assert row_of(letter)["lossy"] == (lossy or None)

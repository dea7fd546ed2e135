"""Values nested thousands of levels deep: such a message is read, copied and recognised like any other."""

from __future__ import annotations

import struct
from hashlib import blake2b

import pytest
from tests.amqp.test_delivery import delivery
from tests.amqp.test_pills import BODY, as_came, asked, copy_of_it, nested, one_entry, section

KINDS = ["list", "map", "array", "described", "descriptor"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("depth", [99, 2000, 60000])
def test_values_inside_values_as_a_body(kind: str, depth: int) -> None:
    """A deeply nested body is shown decoded or as its bytes, and copied unchanged."""
    data = section(0x70, b"\xc0\x02\x01A") + section(0x77, nested(depth, kind))
    found = delivery(data)
    asked(found)
    assert found.value == found.body if depth > 100 else found.value != found.body
    assert as_came(copy_of_it(found)) == as_came(found)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("code", [0x72, 0x73, 0x74])
def test_values_inside_values_elsewhere(kind: str, code: int) -> None:
    """A deeply nested property, annotation or message-id is absent; the dead letter has all but the id."""
    deep = nested(2000, kind)
    value = (
        b"\xd0" + struct.pack(">II", len(deep) + 4, 1) + deep
        if code == 0x73
        else one_entry(b"\xa1\x01k", deep)
    )
    data = section(code, value) + BODY
    found = delivery(data)
    asked(found)
    assert (found.body, found.headers, found.key) == (b"body", {}, None)
    copy = copy_of_it(found)
    assert (copy.body, copy.headers["redeliveryCause"]) == (b"body", "ValueError")
    assert (deep in copy.raw) == (code != 0x73)


@pytest.mark.parametrize("kind", KINDS)
def test_values_inside_values_beside_an_id(kind: str) -> None:
    """A message with nested values has its id as its identity, and a digest of all its bytes."""
    deep = nested(2000, kind)
    data = section(0x73, b"\xc0\x06\x01\xa1\x03one") + section(0x74, one_entry(b"\xa1\x01k", deep)) + BODY
    found = delivery(data)
    asked(found)
    assert (found.message_id, found.key) == ("one", ("queue://orders", str, "one", None))
    assert found.digest() == blake2b(data, digest_size=16).digest()
    copy = copy_of_it(found)
    assert (copy.body, copy.headers["redeliveryOriginalId"], deep in copy.raw) == (b"body", "one", True)

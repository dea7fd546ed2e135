"""Messages that crash other clients or stop their consumers: each is read, copied and counted like any other."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from hashlib import blake2b
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from tests.amqp.test_delivery import AT, delivery, message

from redelivery.core.commands import Forward
from redelivery.core.dead_lettering.routing import copy_of, told_of
from redelivery.core.delivery import Cause, Record
from redelivery.core.ledger_entry import fingerprint
from redelivery.dlq.dead_letter import read_letter
from redelivery.dlq.export import row_of
from redelivery_amqp import codec
from redelivery_amqp import codec as bounded_values
from redelivery_amqp.message_copies import copied
from redelivery_amqp.profiles import AmqpArtemis

if TYPE_CHECKING:
    from redelivery_amqp.delivery import AmqpDelivery

PILL = bytes.fromhex("00800000000000000077f0000000050000ffff40")
BODY = b"\0Su\xa0\x04body"
NAMES = {
    0x70: b"amqp:header:list", 0x72: b"amqp:message-annotations:map", 0x73: b"amqp:properties:list",
    0x74: b"amqp:application-properties:map", 0x75: b"amqp:data:binary", 0x76: b"amqp:amqp-sequence:list",
    0x77: b"amqp:amqp-value:*",
}  # fmt: skip
ASKED = (
    "annotations", "body", "body_kind", "broker_count", "content_encoding", "content_type", "correlation_id", "dated",
    "destination", "died_of", "digest", "expiration", "expires_at", "group", "headers", "identity", "key", "message_id",
    "message_type", "origin", "persistent", "priority", "readable", "redelivered", "reply_to", "timestamp", "value",
)  # fmt: skip
READ_ALL = """
import sys
from tests.amqp.test_pills import asked, copy_of_it
from tests.amqp.test_delivery import delivery
for data in sys.argv[1:]:
    found = delivery(bytes.fromhex(data))
    asked(found)
    assert copy_of_it(found).raw
    asked(copy_of_it(found))
"""


def nested(depth: int, kind: str = "list") -> bytes:
    """Return a value nested this deep."""
    if kind == "described":
        return b"\0S\1" * depth + b"\x40"
    if kind == "descriptor":
        return b"\0" * depth + b"S\1" + b"\x40" * depth
    heads, size = list[bytes](), 1
    if kind == "array":
        # Its elements share one constructor: each array is an element of the one around it.
        for _ in range(depth):
            heads.append(struct.pack(">II", size + 13, 1) + b"\xf0")
            size += 9
        return b"\xf0" + b"".join(reversed(heads)) + struct.pack(">II", 5, 0) + b"\x40"
    for _ in range(depth):
        name = b"\xa1\x01a" if kind == "map" else b""
        code, count = (b"\xd1", 2) if kind == "map" else (b"\xd0", 1)
        heads.append(code + struct.pack(">II", size + 4 + len(name), count) + name)
        size += 9 + len(name)
    return b"".join(reversed(heads)) + b"\x45"


def one_entry(key: bytes, value: bytes) -> bytes:
    """Return a map with one entry."""
    return b"\xd1" + struct.pack(">II", len(key + value) + 4, 2) + key + value


def section(code: int, value: bytes, form: str = "small") -> bytes:
    """Return a section with a descriptor in one of the forms of the standard."""
    name = NAMES[code]
    descriptor = {
        "small": b"\x53" + bytes([code]),
        "ulong": b"\x80" + code.to_bytes(8, "big"),
        "symbol": b"\xa3" + bytes([len(name)]) + name,
        "long symbol": b"\xb3" + len(name).to_bytes(4, "big") + name,
    }[form]
    return b"\0" + descriptor + value


def asked(found: AmqpDelivery) -> dict[str, Any]:
    """Read every property of a delivery."""
    answers = {name: getattr(found, name) for name in ASKED}
    hash(answers["key"])
    return {name: answer() if callable(answer) else answer for name, answer in answers.items()}


def copy_of_it(found: AmqpDelivery) -> AmqpDelivery:
    """Return its dead letter, as the engine makes it."""
    record = Record(1)
    record.last_failure = 1.0
    out = copy_of(found, "queue://DLQ", told_of(found, record, Cause("ValueError"), 0.0), found.expires_at)
    return delivery(
        copied(Forward(found, out, Cause("ValueError"), 1), found, AmqpArtemis(), AT), "queue://DLQ"
    )


def as_came(found: AmqpDelivery) -> list[bytes]:
    """Return the sections of its body."""
    return [found.raw[a:b] for a, b, code in codec.spans(found.places) if code in codec.BODIES]


@pytest.mark.ci("a child process: 0.3 s")
def test_twenty_bytes_that_killed_the_process_are_read_and_copied() -> None:
    """A message of twenty bytes that crashes proton's encoder is read and copied: proton never gets it."""
    arrays = [
        section(code, b"\xf0" + struct.pack(">II", 4 + len(element), count) + element, form)
        for code in (0x77, 0x76, 0x75, 0x74, 0x73, 0x72)
        for element, count in (
            (b"\x40", 65535),
            (b"\x45", 2**32 - 1),
            (b"\xf0", 9),
            (b"\0S\1\x40", 70000),
            (b"\xc0", 1),
        )
        for form in ("small", "ulong", "symbol")
    ]
    done = subprocess.run(
        [sys.executable, "-c", READ_ALL, PILL.hex(), *(data.hex() for data in arrays)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_a_body_that_python_can_have_is_shown_as_it_is() -> None:
    """A body that Python can represent is decoded; an array of nulls up to a limit."""
    found = delivery(PILL)
    assert found.value == [None] * 65535
    assert (found.body, found.readable) == (PILL[10:], True)
    assert as_came(copy_of_it(found)) == [PILL]


@pytest.mark.parametrize("code", [0x70, 0x72, 0x73, 0x74])
def test_a_described_section_is_no_section(code: int) -> None:
    """A section with a described value cannot be read; the dead letter has the other sections."""
    data = section(code, b"\0\x53\x01" + (b"\x45" if code in (0x70, 0x73) else b"\xc1\x01\0")) + BODY
    copy = copy_of_it(delivery(data))
    assert (copy.body, copy.headers["redeliveryCause"]) == (b"body", "ValueError")


def test_how_many_elements_without_bytes_are_shown() -> None:
    """An array of 65,536 elements without bytes is decoded, one of 65,537 is not."""
    for count, shown in ((65536, [None] * 65536), (65537, None)):
        found = delivery(section(0x77, b"\xf0" + struct.pack(">II", 5, count) + b"\x40"))
        assert found.value == (shown or found.body)


@pytest.mark.parametrize("data", [
    b"\0SuRa" + section(0x74, one_entry(b"\xa1\x01k", b"\xa1\x01v")) + BODY,
    section(0x75, b"\xa0\x01a") + section(0x74, one_entry(b"\xa1\x01k", b"\xa1\x01v")) + BODY,
    section(0x74, one_entry(b"\xa1\x01k", b"\xa1\x01v")) + section(0x74, b"\xc1\x01\0") + BODY,
    section(0x77, b"\x54\x07") + section(0x74, one_entry(b"\xa1\x01k", b"\xa1\x01v")) + section(0x75, b"\xa0\x01a"),
    section(0x77, b"\xa1\x01a") + BODY, BODY + section(0x77, b"\xa1\x01a"), section(0x77, b"\xa1\x01a") * 2,
    section(0x73, b"\x45") * 2 + BODY, BODY + b"\0Sx\xc1\x01\0" + BODY,
    section(0x76, b"\x45") + section(0x70, b"\x45") + section(0x75, b"\xa0\x01a") + BODY,
])  # fmt: skip
def test_sections_out_of_order_or_twice(data: bytes) -> None:
    """A message with a wrong, repeated or misplaced section is dead-lettered as bytes, and marked as not whole."""
    copy = copy_of_it(delivery(data))
    assert (copy.body, copy.headers["redeliveryWhole"]) == (data, "false")
    assert not read_letter(copy, "queue://DLQ").whole


def test_what_is_no_message_is_kept_as_bytes() -> None:
    """Bytes that are not a message are the body, and stay the body in the dead letter and after a redrive."""
    data = BODY + b"\0SuRa"
    copy = copy_of_it(delivery(data))
    assert delivery(data).body == copy.body == redriven(copy).body == data
    assert read_letter(copy, "queue://DLQ").whole


def test_four_billion_nulls_are_not_made() -> None:
    """An array of four billion nulls, ten bytes, is not decoded; the application gets the bytes."""
    data = section(0x77, b"\xf0\0\0\0\x05\xff\xff\xff\xff\x40")
    found = delivery(data)
    assert found.value == found.body == copy_of_it(found).body == redriven(copy_of_it(found)).body
    assert as_came(copy_of_it(found)) == [data]


@pytest.mark.parametrize("form", ["ulong", "symbol", "long symbol"])
def test_each_form_of_a_descriptor_is_read(form: str) -> None:
    """A descriptor can be a number of one byte or eight, or a name; a copy keeps the form of the body's."""
    plain = [
        (0x70, b"\xc0\x04\x02\x41\x50\x07"), (0x73, b"\xc0\x06\x01\xa1\x03one"),
        (0x74, one_entry(b"\xa1\x01k", b"\xa1\x01v")), (0x75, b"\xa0\x02hi"), (0x75, b"\xb0\0\0\0\x01!"),
    ]  # fmt: skip
    one = delivery(b"".join(section(code, value) for code, value in plain))
    other = delivery(b"".join(section(code, value, form) for code, value in plain))
    answers = [{**asked(each), "digest": None} for each in (one, other)]
    assert answers[0] == answers[1]
    assert (other.body, other.priority, other.headers, other.message_id) == (b"hi!", 7, {"k": "v"}, "one")
    assert as_came(copy_of_it(other)) == as_came(other)
    assert other.raw != one.raw


def test_nothing_of_a_message_is_decoded_when_it_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    """An arriving message is not decoded: only the places of its sections, and its id, are found."""

    def refused(*_: object) -> Any:
        raise AssertionError("decoded")

    data = message({"a": [1]}, inferred=False, properties={"redeliveryId": "u", "deep": {"a": 1}}, ttl=5.0)
    monkeypatch.setattr(bounded_values, "decoded", refused)
    for module in ("delivery", "sections"):
        monkeypatch.setattr(f"redelivery_amqp.{module}.decoded", refused)
    monkeypatch.setattr(codec, "read_map", refused)
    found = delivery(data)
    assert found.key == ("queue://orders", str, "u", None)
    assert (found.broker_count, found.expires_at, found.group, found.redelivered) == (0, AT + 5, None, False)
    with pytest.raises(AssertionError):
        assert found.value


def test_a_count_alone_does_not_make_us_read_what_comes_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A map with a false count of a million is empty; the body after it is not read as its entries."""
    body = b"\xa1\x01a\x40" * 10
    data = b"\0St\xd1\0\0\0\x04\0\x0f\x42\x40" + section(0x75, b"\xb0" + struct.pack(">I", len(body)) + body)
    found = delivery(data)
    assert (found.headers, found.body, found.key) == ({}, body, None)
    assert copy_of_it(found).body == body
    looked = iter(range(2))
    monkeypatch.setattr(codec, "_read", lambda *_: next(looked))
    with pytest.raises(codec.Unknown):
        codec.read_map(data, 3)


def test_the_digest_is_of_what_the_producer_sent() -> None:
    """The digest depends on the producer's sections only, not on counts, annotations or the footer."""
    sent = [
        section(0x73, b"\xc0\x06\x01\xa1\x03one"),
        section(0x74, one_entry(b"\xa1\x01k", b"\xa1\x01v")),
        BODY,
    ]
    header = section(0x70, b"\xc0\x07\x05@@@@\x52\x07")
    footer = b"\0Sx\xc1\x05\x02\xa3\x01h\x45"
    annotations = section(0x72, one_entry(b"\xa3\x01k", b"\x45"))
    bare = b"".join(sent)
    expected = blake2b(bare, digest_size=16).digest()
    for data in (bare, header + bare, header + annotations + bare + footer, annotations + bare):
        assert delivery(data).digest() == expected
    others = [b"".join(sent[:2]), sent[0] + sent[2], bare + BODY, b"no message", b""]
    assert len({expected, *(delivery(data).digest() for data in others)}) == 6
    assert delivery(b"no message").digest() == blake2b(b"no message", digest_size=16).digest()
    assert all(one != other for one, other in pairwise(others))


def test_whether_a_message_has_a_creation_time() -> None:
    """A message is `dated` if it has a creation time: only then id and time together identify it."""
    assert delivery(message(id="m-1", creation_time=AT)).dated
    assert not delivery(message(id="m-1")).dated
    assert not delivery(b"no message").dated


@pytest.mark.parametrize("data", [
    PILL, section(0x77, nested(2000)) , section(0x74, one_entry(b"\xa1\x01k", nested(2000, "map"))) + BODY,
    section(0x77, b"\xf0\0\0\0\x05\xff\xff\xff\xff\x40"), b"\0Sp\xc0\x04\x02AQ\xff" + BODY,
])  # fmt: skip
def test_the_tools_and_the_ledger_take_them(data: bytes) -> None:
    """Each message, and its dead letter, can be exported as a row of JSON and has a name in the ledger."""
    for found in (delivery(data), copy_of_it(delivery(data))):
        letter = read_letter(found, "queue://DLQ")
        assert json.dumps(row_of(letter), default=str)
        assert len(fingerprint(found)) == len(fingerprint(delivery(found.raw)))
        assert redriven(found).raw


def redriven(found: AmqpDelivery) -> AmqpDelivery:
    """Return the redriven message."""
    out = copy_of(found, "queue://orders", dict(found.headers))
    return delivery(copied(Forward(found, out, Cause(""), 0, redrive=True), found, AmqpArtemis(), AT))


def test_a_redriven_pill_is_the_message_that_it_was() -> None:
    """A redriven message has its original body, byte for byte."""
    assert as_came(redriven(copy_of_it(delivery(PILL)))) == [PILL]

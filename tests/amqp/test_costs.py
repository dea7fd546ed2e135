"""Costs of reading a message: in proportion to its bytes."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import pytest
from tests.amqp.test_delivery import delivery
from tests.amqp.test_pills import asked, copy_of_it, one_entry, section
from tests.matrix import some

from redelivery.dlq.dead_letter import read_letter
from redelivery_amqp import codec
from redelivery_amqp import codec as bounded_values
from redelivery_amqp.message_encoding import list_of, map_of
from redelivery_amqp.sections import map_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery_amqp.delivery import AmqpDelivery
    from redelivery_amqp.receiver import ReceiverLink

PRIME = 2**61 - 1
KEYS: dict[str, Callable[[int], bytes]] = {
    "uuid": lambda number: b"\x98" + number.to_bytes(16, "big"),
    "number": lambda number: b"\x70" + number.to_bytes(4, "big"),
    "text": lambda number: b"\xa1\x04%04d" % number,
    "binary": lambda number: b"\xa0\x04%04d" % number,
}
BODY = b"\0Su\xa0\x04body"


def colliding(count: int) -> bytes:
    """Return a map whose keys are UUIDs of one hash."""
    return map_of([(b"\x98" + (number * PRIME).to_bytes(16, "big"), b"\x40") for number in range(count)])


@pytest.fixture
def comparisons(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the number of comparisons of UUIDs."""
    counted = [0]
    before = UUID.__eq__

    def equal(self: UUID, other: object) -> bool:
        counted[0] += 1
        return before(self, other)

    monkeypatch.setattr(UUID, "__eq__", equal)
    return counted


ONE_HASH = some(
    [(code, inside) for inside in (False, True) for code in (0x72, 0x74, 0x77)],
    [(0x72, False), (0x74, True), (0x77, False)],
    spread=True,
)


@pytest.mark.parametrize(("code", "inside"), ONE_HASH)
def test_keys_of_one_hash_are_not_compared_with_each_other(
    comparisons: list[int], code: int, inside: bool
) -> None:
    """Keys of one hash are not compared with each other: 20,000 of them stopped a connection's thread for 30 s."""
    value = colliding(2000)
    data = section(code, one_entry(b"\xa1\x01k", value) if inside else value) + (
        BODY if code != 0x77 else b""
    )
    found = delivery(data)
    for each in (found, copy_of_it(found)):
        asked(each)
        read_letter(each, "queue://DLQ")
    assert comparisons[0] < 2000
    if code == 0x77:
        assert found.value == found.body
    elif inside:
        shown = found.headers if code == 0x74 else found.annotations
        assert len(shown["k"]) == 2000, "as text they are told apart at once"


def test_ids_of_one_hash_are_kept_apart_at_once(comparisons: list[int]) -> None:
    """Messages whose ids have one hash are distinguished without comparisons when they are looked up."""
    identities = [
        section(0x73, list_of([b"\x98" + (number * PRIME).to_bytes(16, "big")])) for number in range(1000)
    ]
    assert len({delivery(data + BODY).key for data in identities}) == 1000
    assert comparisons[0] < 1000
    key = delivery(identities[3] + BODY).key
    plain = ("queue://orders", UUID, UUID(int=3 * PRIME), None)
    assert (key, repr(key)) == (plain, repr(plain)), "names in ledgers are made of it"
    assert delivery(identities[3] + BODY).message_id == str(UUID(int=3 * PRIME))


@pytest.mark.parametrize(("count", "kind", "shown"), [
    (64, "uuid", True), (65, "uuid", False), (1000, "number", True), (1001, "number", False), (5000, "text", True),
    (5000, "binary", True),
])  # fmt: skip
def test_a_body_that_is_a_map(count: int, kind: str, shown: bool) -> None:
    """A body that is a map has any number of names, but few keys whose hash a producer can choose."""
    found = delivery(section(0x77, map_of([(KEYS[kind](number), b"\x40") for number in range(count)])))
    assert (found.value != found.body) == shown
    assert not shown or len(found.value) == count


def test_empty_arrays_of_many_annotations_are_not_all_made() -> None:
    """The bound of empty elements is one for a whole section: a thousand such entries would be 65 million nulls."""
    nulls = b"\xf0" + struct.pack(">II", 5, bounded_values.MOST_EMPTY) + b"\x40"
    found = delivery(
        section(0x72, map_of([(b"\xa3\x02%02d" % number, nulls) for number in range(50)])) + BODY
    )
    assert sum(map(len, found.annotations.values())) <= bounded_values.MOST_EMPTY


@pytest.mark.parametrize("described", [b"", b"\0\x40"], ids=["plain", "described"])
def test_arrays_as_keys_are_not_made(monkeypatch: pytest.MonkeyPatch, described: bytes) -> None:
    """A key that is not a simple value is skipped: 2,500 arrays of empty lists, 27 kB, held a consumer for a minute."""
    made: list[int] = []
    before = bounded_values.decoded

    def counted(data: bytes, at: int, end: int, budget: bounded_values.Budget, **given: bool) -> object:
        left = budget.empty
        try:
            return before(data, at, end, budget, **given)
        finally:
            made.append(left - budget.empty)

    monkeypatch.setattr("redelivery_amqp.sections.decoded", counted)
    array = described + b"\xf0" + struct.pack(">II", 5, 65535) + b"\x45"
    found = delivery(section(0x74, map_of([(array, b"\x40"), (b"\xa1\x01a", b"\x41")] * 50)) + BODY)
    assert found.headers == {"a": True}
    copy = copy_of_it(found)
    assert copy.headers["a"] is True
    assert made
    assert sum(made) == 0


def test_annotations_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The annotations of a dead letter are decoded once, however often they are read."""
    found = delivery(section(0x72, one_entry(b"\xa3\x01k", b"\x41")) + BODY)
    assert found.annotations == {"k": True}
    monkeypatch.setattr(codec, "read_map", None)
    assert found.annotations == {"k": True}


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return a list with the byte string of each map that is decoded."""
    found: list[bytes] = []

    def counted(data: bytes, at: int | None) -> tuple[dict[str, Any], bool]:
        found.append(data)
        return map_in(data, at)

    monkeypatch.setattr("redelivery_amqp.sections.map_in", counted)
    return found


def unsettled(data: bytes, link: ReceiverLink | None = None) -> AmqpDelivery:
    """Return a message that is not settled."""
    found = delivery(data)
    found.source, found.handle = link or found.source, object()
    return found


def test_many_properties_are_read_once_for_a_dead_letter(reads: list[bytes]) -> None:
    """Nested properties are cached for the last message only: 49,000 take a second, and are read several times."""
    nested = [(b"\xa1\x03%03d" % number, b"\xc0\x02\x01\x40") for number in range(200)]
    bad = unsettled(section(0x74, map_of(nested)) + BODY)
    assert copy_of_it(bad).headers["199"] == [None]
    assert reads.count(bad.raw) == 1
    assert bad.headers is bad.headers


def test_properties_are_not_kept_longer_than_their_message_is_dealt_with(reads: list[bytes]) -> None:
    """Large properties are cached for one message of each link, until it is settled or parked."""
    large = section(0x74, one_entry(b"\xa1\x01k", b"\xc0\x02\x01\x40")) + BODY
    first = unsettled(large)
    link = cast("ReceiverLink", first.source)
    second = unsettled(large, link)
    for one in (first, second, second, first):
        assert one.headers == {"k": [None]}
    assert len(reads) == 3
    first.slim()
    assert first.headers == first.headers == {"k": [None]}
    assert len(reads) == 4
    link.large.forget([second, first])
    assert link.large.of(first) is None
    assert link.large.of(delivery(large)) is None
    first.handle = None
    assert first.headers == first.headers
    assert len(reads) == 6


@pytest.mark.parametrize(
    "piece", [b"\0Su\xa0\0", b"\0Su\xb0\0\0\0\0", b"\0Sv\x45", b"\0Su\xa0\x20" + b"x" * 32]
)
def test_sections_without_end_are_no_message(piece: bytes) -> None:
    """Bytes with too many sections are the body, unchanged: 10 MB of empty sections took half a gigabyte."""
    data = piece * 30_000
    found = delivery(data)
    assert (found.places, found.body) == ([], data)
    assert copy_of_it(found).body == data


@pytest.mark.parametrize(("size", "count"), [(0, 900), (200, 10_000), (1024, 5000), (70, 20_000)])
def test_a_body_in_many_pieces_is_one(size: int, count: int) -> None:
    """A body in many data sections is joined: a producer may write it piece by piece."""
    piece = b"x" * size
    head = b"\xa0" + bytes([size]) if size < 256 else b"\xb0" + size.to_bytes(4, "big")
    found = delivery((b"\0Su" + head + piece) * count)
    assert found.body == piece * count
    assert copy_of_it(found).body == found.body

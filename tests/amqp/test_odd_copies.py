"""Copies of odd messages: the dead letter is the same message, and so is the redriven one."""

from __future__ import annotations

import json
from collections import Counter
from itertools import product
from typing import TYPE_CHECKING

import pytest
from tests.amqp.test_delivery import delivery
from tests.amqp.test_pills import copy_of_it, nested, one_entry, redriven, section
from tests.matrix import some

from redelivery.dlq.dead_letter import read_letter
from redelivery.dlq.export import row_of
from redelivery_amqp import codec
from redelivery_amqp.message_encoding import list_of, map_of

if TYPE_CHECKING:
    from redelivery_amqp.delivery import AmqpDelivery

N = b"\x40"
TEXT = section(0x77, b"\xa1\x02hi")
PLAIN = section(0x74, one_entry(b"\xa1\x01a", b"\xa1\x01b"))
ODD = {
    "user-id as text": section(0x73, list_of([N, b"\xa1\x02me", N, b"\xa1\x01s"])) + PLAIN + TEXT,
    "a correlation id that is a list": section(0x73, list_of([N, N, N, b"\xa1\x01s", N, b"\x45"]))
    + PLAIN
    + TEXT,
    "a content type as text": section(0x73, list_of([N] * 6 + [b"\xa1\x01t"])) + PLAIN + TEXT,
    "a fourteenth field": section(0x73, list_of([N, N, N, b"\xa1\x01s", *[N] * 10])) + PLAIN + TEXT,
    "no map of properties": section(0x74, N) + TEXT,
    "no map of annotations": section(0x72, N) + PLAIN + TEXT,
    "no list of fields": section(0x73, N) + PLAIN + TEXT,
    "a header of null": section(0x70, N) + PLAIN + TEXT,
    "annotations with a number as a key": section(0x72, one_entry(b"\x53\x07", b"\x41")) + PLAIN + TEXT,
    "a property with a number as its name": section(0x74, one_entry(b"\x54\x07", b"\xa1\x01b")) + TEXT,
    "a property with a list as its name": section(0x74, map_of([(b"\x45", N), (b"\xa1\x01a", N)])) + TEXT,
    "a property that is no UTF-8": section(0x74, map_of([(b"\xa1\x01x", b"\xa1\x01\xff"), (b"\xa1\x01a", N)]))
    + TEXT,
    "a property that is an array": section(0x74, one_entry(b"\xa1\x01a", b"\xe0\x03\x01\x50\x07")) + TEXT,
    "a property without a value": section(0x74, b"\xc1\x05\x03\xa1\x01a\x41") + TEXT,
    "two properties of one name": section(0x74, map_of([(b"\xa1\x01a", N), (b"\xa1\x01a", b"\x41")])) + TEXT,
    "a footer": PLAIN + TEXT + b"\0Sx" + one_entry(b"\xa3\x01h", b"\x41"),
    "a body nested deep": PLAIN + section(0x77, nested(20_000)),
    "an annotation nested deep": section(0x72, one_entry(b"\xa3\x01k", nested(2000))) + PLAIN + TEXT,
    "properties before fields": PLAIN + section(0x73, list_of([N, N, N, b"\xa1\x01s"])) + TEXT,
    "two sequences": PLAIN + section(0x76, list_of([b"\x54\x01"])) + section(0x76, list_of([b"\x54\x02"])),
}


def seen(found: AmqpDelivery) -> tuple[object, ...]:
    """Return what a handler is given."""
    ours = {"_AMQ_ORIG_ADDRESS", "_AMQ_ORIG_QUEUE"}
    headers = {
        name: value
        for name, value in found.headers.items()
        if not name.startswith("redelivery") and name not in ours
    }
    return (
        found.body, found.value, found.body_kind, headers, found.content_type, found.correlation_id,
        found.message_type, found.group, found.reply_to, found.priority,
    )  # fmt: skip


@pytest.mark.parametrize("name", list(ODD))
def test_what_a_handler_was_given_is_what_is_dead_lettered_and_put_back(name: str) -> None:
    """An odd message has the same body and properties when it is handled, dead-lettered and redriven."""
    found = delivery(ODD[name])
    copy = copy_of_it(found)
    again = redriven(copy)
    assert seen(found) == seen(copy) == seen(again)
    assert copy.headers["redeliveryCause"] == "ValueError"
    letter = read_letter(copy, "queue://DLQ")
    assert letter.whole
    assert json.dumps(row_of(letter), default=str)
    assert (found.readable, copy.readable) == (True, True)


def test_what_could_not_be_read_is_there_as_it_came() -> None:
    """A field of a wrong type, or a property that is not UTF-8, is copied byte for byte."""
    for name, entry in (
        ("user-id as text", b"\xa1\x02me"),
        ("a property that is no UTF-8", b"\xa1\x01x\xa1\x01\xff"),
    ):
        copy = copy_of_it(delivery(ODD[name]))
        assert entry in copy.raw
        assert entry in redriven(copy).raw


@pytest.mark.parametrize("name", ["_AMQ_DUPL_ID", "redeliveryOriginalDestination", "_AMQ_ORIG_ADDRESS"])
def test_a_property_that_cannot_be_read_is_no_way_around_what_is_left_out(name: str) -> None:
    """An unreadable property is not copied under a name that a broker or a redrive acts on."""
    key = bytes((0xA1, len(name))) + name.encode()
    evil = section(0x74, map_of([(key, nested(200))])) + TEXT
    copy = copy_of_it(delivery(evil))
    assert nested(200) not in copy.raw
    # As another client, or the broker, can have left it on the dead letter.
    assert nested(200) not in redriven(delivery(evil)).raw


def test_what_tells_of_a_death_does_not_go_back_though_it_cannot_be_read() -> None:
    """An unreadable dead-letter property is not redriven, nor is one of a broker."""
    key = bytes((0xA1, 23)) + b"dlqDeliveryFailureCause"
    letter = delivery(section(0x74, map_of([(key, nested(200)), (b"\xa1\x01a", nested(300))])) + TEXT)
    assert b"dlqDelivery" not in redriven(letter).raw
    assert nested(300) in redriven(letter).raw


@pytest.mark.parametrize("code", [0x72, 0x74])
def test_more_properties_than_are_read_are_not_lost(code: int) -> None:
    """A message with too many properties or annotations is dead-lettered with all its bytes; no redrive takes it."""
    count = codec.MOST_ENTRIES // 2
    found = delivery(section(code, map_of([(b"\xa1\x01a", N)] * (count + 1))) + TEXT)
    assert (found.headers, found.body, found.readable) == ({}, b"hi", False)
    copy = copy_of_it(found)
    assert (copy.body, copy.headers["redeliveryWhole"]) == (found.raw, "false")
    letter = read_letter(copy, "queue://DLQ")
    assert (letter.whole, row_of(letter)["whole"]) == (False, False)


KINDS = (
    b"\0Sp\xc0\x02\x01\x41", b"\0Ss\xc0\x03\x01\xa3\0", b"\0Su\xa0\x01a", b"\0Su\xb0\0\0\0\x01b", b"\0Su\x52\x07",
    b"\0Sw\xa1\x01v", b"\0Sv\xc0\x02\x01\x41", b"\0Sx\xc1\x01\0",
)  # fmt: skip


@pytest.mark.ci("all orders of sections: 0.3 s")
def test_sections_in_any_order_are_copied_as_the_body_that_was_seen() -> None:
    """Sections in any order are copied with the body that the handler saw; all orders of four are tried."""
    orders = [order for count in (1, 2, 3, 4) for order in product(KINDS, repeat=count)]
    for order in orders:
        found = delivery(b"".join(order))
        copy = copy_of_it(found)
        assert copy.readable, order
        assert copy.body == (found.body if found.readable else found.raw), order


@pytest.mark.parametrize("piece", some([b"", b"x" * 20, b"x" * 100], [b""]), ids=["empty", "short", "long"])
def test_what_is_read_can_be_copied_however_many_sections_it_has(piece: bytes) -> None:
    """A message with nearly as many sections as are read is copied as bytes: the copy itself has some more."""
    one = section(0x75, b"\xa0" + bytes((len(piece),)) + piece)
    kinds: Counter[bool] = Counter()
    for count in [*range(850, 1150, 3), *range(1150, 4000, 97)]:
        found = delivery(one * count)
        copy = copy_of_it(found)
        assert copy.readable
        assert copy.body == (found.body if found.readable else found.raw)
        kinds[found.readable] += 1
    assert kinds[True]


HUGE = {
    "a billion nulls": b"\xf0\0\0\0\x05\x3b\x9a\xca\0\x40",
    "a list of 100,000": b"\xd0" + (100_004).to_bytes(4, "big") + (100_000).to_bytes(4, "big") + N * 100_000,
}


@pytest.mark.parametrize("value", HUGE.values(), ids=HUGE.keys())
def test_a_huge_value_hides_no_cause(value: bytes) -> None:
    """The cause of a dead letter can be read, however large the other properties of its message are."""
    copy = copy_of_it(
        delivery(section(0x74, map_of([(b"\xa1\x01a", value), (b"\xa1\x01b", b"\x41")])) + TEXT)
    )
    assert copy.headers["redeliveryCause"] == "ValueError"
    assert value in copy.raw


def test_a_producer_does_not_say_that_its_message_is_not_whole() -> None:
    """The copy states itself whether it is whole; a producer's property of that name is not copied."""
    copy = copy_of_it(
        delivery(section(0x74, map_of([(b"\xa1\x0fredeliveryWhole", b"\xa1\x05false")])) + TEXT)
    )
    assert "redeliveryWhole" not in copy.headers
    assert read_letter(copy, "queue://DLQ").whole

"""Messages over AMQP: anything that a producer sends is read, copied and identified, and nothing of it is lost."""

from __future__ import annotations

import importlib.util
import struct
from typing import Any

from tests.fuzz.target import Target

__all__ = ["TARGETS"]

PILL = bytes.fromhex("00800000000000000077f0000000050000ffff40")
_HEADER, _BODY = b"\0Sp\xc0\x02\x01A", b"\0Su\xa0\x04body"
_PROPERTIES = b"\0Ss\xc0\x0e\x0a\xa1\x02id@@@@@@@@R\x05"
_MAP = b"\0St\xc1\x0c\x04\xa1\x01k\xa1\x01v\xa1\x01n\x55\x07"
_NAMED = b"\0\xa3\x14amqp:properties:list\xc0\x05\x01\xa1\x02id\0\xb3\0\0\0\x10amqp:data:binary\xa0\x04body"
_TEXTS = (
    "content_encoding", "content_type", "correlation_id", "died_of", "group", "identity", "message_id", "message_type",
    "origin", "reply_to",
)  # fmt: skip
_COPIED = ("content_encoding", "content_type", "correlation_id", "group", "message_type", "reply_to")
_OTHERS = (
    "body_kind", "broker_count", "dated", "destination", "expiration", "expires_at", "persistent", "priority",
    "redelivered", "timestamp",
)  # fmt: skip
_DICTIONARY = [
    *(b"\0S" + bytes([code]) for code in range(0x70, 0x79)),
    *(b"\0\x80" + code.to_bytes(8, "big") for code in (0x70, 0x73, 0x74, 0x75, 0x77)),
    b"\0\xa3\x10amqp:header:list", b"\0\xa3\x14amqp:properties:list", b"\0\xa3\x10amqp:data:binary",
    b"\0\xa3\x1eamqp:application-properties:map", b"\0\xa3\x11amqp:amqp-value:*", b"\0S\1", b"\xff\xff\xff\xff",
    b"\xc0\x02\x01", b"\xc1\x01\0", b"\xd0\0\0\0\x04\0\0\0\0", b"\xd1\0\0\0\x04\0\0\0\0", b"\xe0\x03\x01\x40\x40",
    b"\xf0\0\0\0\x05\0\0\xff\xff\x40", b"\xf0\0\0\0\x05\xff\xff\xff\xff\x45", b"\xa1\x0credeliveryId\xa1\x01u", b"\x40",
    b"\x41", b"\x43", b"\x45", b"\x51\xff", b"\x54\x80", b"\x55\xff", b"\x56\1", b"\x70\xff\xff\xff\xff",
    b"\0Su\xa0\0", b"\0Sv\x45", b"\xa1\x07shop.b,", b"\xa1\x0fshop.b,topic://", b"\xa1\x0cshop.x,y://z", b",", b"://",
    b"\xa1\x10x-opt-ORIG-QUEUE", b"\xa1\x12x-opt-ORIG-ADDRESS\xa1\x02a,", b"\xa1\x0e_AMQ_ORIG_ADDRESS\xa1\x02a,",
    b"\x98\x1f\xff\xff\xff\xff\xff\xff\xff" + bytes(8) + b"\x40",
    b"\x83\x7f\xff\xff\xff\xff\xff\xff\xff", b"\x98" + bytes(16), b"\x73\0\0\xd8\0", b"\x82\x7f\xf0" + bytes(6),
]  # fmt: skip


def _nested(depth: int, head: bytes = b"\xd0") -> bytes:
    heads, size = list[bytes](), 1
    for _ in range(depth):
        heads.append(head + struct.pack(">II", size + 4, 1))
        size += 9
    return b"".join(reversed(heads)) + b"\x45"


def seeds() -> list[bytes]:
    """Return messages of each form, and those that crashed or stopped a consumer once."""
    deep = _nested(120)
    entry = b"\xa1\x01k" + deep
    in_map = b"\xd1" + struct.pack(">II", len(entry) + 4, 2) + entry
    return [
        PILL, _NAMED, _HEADER + _PROPERTIES + _MAP + _BODY, _HEADER + _BODY + _BODY,
        _HEADER + _PROPERTIES + b"\0Sw\xa1\x04text", _PROPERTIES + b"\0Sv" + _nested(3), _PROPERTIES + b"\0Sw" + deep,
        _HEADER + b"\0Sw" + b"\0S\1" * 150 + b"\x40", b"\0Sw" + b"\0" * 300, b"\0St" + in_map + _BODY,
        b"\0Sr" + in_map + _BODY, b"\0Sp\xc0\x04\x02AQ\xff" + _BODY, b"\0Sw\xe0\x06\x02\xc0\x02\1@\x02\1@",
        _HEADER + b"\0Sw\xf0\0\0\0\x05\xff\xff\xff\xff\x40", b"\0St\xd1\0\0\0\x04\0\x0f\x42\x40" + _BODY,
        _HEADER + b"\0Su\xa0\0" * 13_000, _HEADER + b"\0Su\xa0\x08" * 2 + b"\0Su\xa0\x64" + bytes(100),
    ]  # fmt: skip


def _read(found: Any) -> None:
    """Read all properties of a delivery."""
    for name in _TEXTS:
        assert isinstance(getattr(found, name), str | None), name
    for name in _OTHERS:
        getattr(found, name)
    assert isinstance(found.body, bytes)
    assert 0 <= found.priority <= 9
    assert all(isinstance(name, str) for name in found.headers)
    assert len(found.digest()) == 16
    hash(found.key)
    repr((found.headers, found.annotations))
    assert found.value is not None or found.raw


def _check(data: bytes) -> None:
    """Read a message, make its copy for each broker, and read that."""
    from redelivery.core.commands import Forward, Subscribe  # noqa: PLC0415 - without proton there is no adapter
    from redelivery.core.dead_lettering.dead_letter_headers import readable_origin  # noqa: PLC0415
    from redelivery.core.dead_lettering.routing import copy_of, told_of  # noqa: PLC0415
    from redelivery.core.delivery import Cause, Record  # noqa: PLC0415
    from redelivery.core.destination import Destination  # noqa: PLC0415
    from redelivery_amqp import codec  # noqa: PLC0415
    from redelivery_amqp import profiles as known  # noqa: PLC0415
    from redelivery_amqp.delivery import AmqpDelivery  # noqa: PLC0415
    from redelivery_amqp.message_copies import copied, never_copied  # noqa: PLC0415
    from redelivery_amqp.receiver import ReceiverLink  # noqa: PLC0415

    # The length selects the broker, as they differ in little.
    kinds = (known.AmqpArtemis, known.AmqpBrokerJ, known.AmqpClassic, known.AmqpRabbitMQ, known.AmqpRabbitMQ4)
    profile = kinds[len(data) % len(kinds)]()
    link = ReceiverLink(Subscribe(1, "queue://shop.>", 100), 1, profile, lambda _: None)
    found = AmqpDelivery(link, data, None, 0, 1e9)
    assert found.destination in (link.destination, "queue://shop") or found.destination.startswith(
        "queue://shop."
    )
    # Before its attempt is marked: a section costs a hundred times its descriptor's bytes.
    assert len(found.places) <= 2100 + len(data) // 60
    # The destination selects the policy.
    assert Destination.parse(found.destination).members
    assert Destination.parse(readable_origin(found.origin) or "queue://none").members
    _read(found)
    record = Record(1)
    record.last_failure = 1.0
    out = copy_of(found, "queue://DLQ", told_of(found, record, Cause("x"), 0.0), found.expires_at)
    copy = AmqpDelivery(link, copied(Forward(found, out, Cause("x"), 1), found, profile, 1e9), None, 0, 1e9)
    _read(copy)
    assert copy.readable
    assert copy.headers["redeliveryCause"] == "x"
    if not found.readable:
        assert copy.body == data, "bytes are lost"
        return
    assert copy.body == found.body, "the body is another one"
    codes = [code for code, _, _ in found.places]
    if codes == sorted(codes):
        bodies = [
            [each.raw[begin:end] for begin, end, code in codec.spans(each.places) if code in codec.BODIES]
            for each in (found, copy)
        ]
        assert bodies[0] == bodies[1], "the body is another one"
    for name in _COPIED:
        assert getattr(copy, name) == getattr(found, name), name
    # Compared as text: NaN does not equal itself.
    lost = {name: value for name, value in out.headers.items() if repr(copy.headers.get(name)) != repr(value)}
    assert not [name for name in lost if not never_copied(name)], "properties are lost"


_PROTON = importlib.util.find_spec("proton") is not None
TARGETS = (
    (Target(name="amqp-messages", check=_check, seeds=seeds, dictionary=_DICTIONARY, isolated=True),)
    if _PROTON
    else ()
)

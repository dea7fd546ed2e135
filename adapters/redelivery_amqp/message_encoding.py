"""Encoding of the application's messages as AMQP."""

from __future__ import annotations

import struct
from math import ceil
from types import NoneType
from typing import TYPE_CHECKING, Any
from uuid import UUID

import proton

from redelivery_amqp.codec import Timestamp

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redelivery.core.outgoing import Outgoing
    from redelivery_amqp.profile_base import AmqpProfile

__all__ = [
    "NULL",
    "delay_of",
    "encoded",
    "list_of",
    "map_of",
    "section",
    "simple",
    "symbol",
    "timestamp",
    "ttl_of",
    "ubyte",
    "uint",
]


# ---- Message encoding ------------------------------------------------------------------------------------

_JMS_KINDS = {"queue": 0, "topic": 1, "temp-queue": 2, "temp-topic": 3}
# Seconds: the header's field has 32 bits of milliseconds.
LONGEST_TTL = (2**32 - 1) / 1000
JMS_TYPE = proton.symbol("x-opt-jms-msg-type")
JMS_REPLY = proton.symbol("x-opt-jms-reply-to")
JMS_DESTINATION = proton.symbol("x-opt-jms-dest")


def encoded(message: Outgoing, profile: AmqpProfile, now: float) -> bytes:
    """Return the encoded message, sent at the wall-clock time `now`."""
    text = message.body_kind == "text"
    out = _envelope(message, profile, now)
    annotations: dict[Any, Any] = {JMS_TYPE: proton.byte(5 if text else 3)}
    if message.reply_to is not None:
        annotations[JMS_REPLY] = proton.byte(_JMS_KINDS.get(message.reply_to.partition("://")[0], 0))
    out.annotations = annotations | {
        proton.symbol(name): value for name, value in delay_of(message, profile, now).items()
    }
    out.correlation_id = message.correlation_id
    out.subject = message.message_type
    out.group_id = message.group
    if message.reply_to is not None:
        out.reply_to = profile.address(message.reply_to)
    if message.content_type is not None:
        out.content_type = message.content_type
    elif not text:
        out.content_type = "application/octet-stream"
    out.properties = dict(message.headers)
    out.inferred = True
    out.body = message.body.decode() if text else message.body
    return bytes(out.encode())


def delay_of(message: Outgoing, profile: AmqpProfile, now: float) -> dict[str, int]:
    """Return the annotation with which the broker delays a message; empty without a delay."""
    if message.delay is None or profile.delay is None:
        return {}
    milliseconds = ceil(message.delay * 1000)
    if profile.delay_is_time:
        milliseconds += ceil(now * 1000)
    # A plain integer (an AMQP long): Classic, Artemis and Broker-J ignore one that is typed as a time.
    return {profile.delay: milliseconds}


def ttl_of(message: Outgoing, now: float) -> float | None:
    """Return the seconds until a message expires; None: it does not, or they exceed the header's 32 bits."""
    if message.expires_at is None:
        return None
    ttl = max(0.001, message.expires_at - now)
    # A longer life is in the `absolute-expiry-time` only.
    return ttl if ttl <= LONGEST_TTL else None


def _envelope(message: Outgoing, profile: AmqpProfile, now: float) -> proton.Message:
    out = proton.Message()
    out.durable = message.persistent
    out.priority = message.priority
    out.address = profile.address(message.destination)
    out.creation_time = int(now * 1000) / 1000
    ttl = ttl_of(message, now)
    if ttl is not None:
        out.ttl = ttl
    if message.expires_at is not None:
        out.expiry_time = message.expires_at
    return out


# ---- Value encoding --------------------------------------------------------------------------------------
# AMQP encoding of the values that the library adds to a copy.

NULL = b"\x40"
# Most bytes of a short form.
_SMALL = 255
_MOST_SIGNED = 2**63 - 1


def simple(value: object) -> bytes:
    """Return the encoding of a simple value; any other (a producer's list in one of our headers) becomes text."""
    for kind, written in _WRITTEN:
        if isinstance(value, kind):
            return written(value)
    return _sized(0xA1, str(value).encode("utf-8", "replace"))


def _integer(value: int) -> bytes:
    if value > _MOST_SIGNED:
        return b"\x80" + value.to_bytes(8, "big")
    return b"\x81" + value.to_bytes(8, "big", signed=True)


def _sized(code: int, data: bytes) -> bytes:
    if len(data) <= _SMALL:
        return bytes((code, len(data))) + data
    return bytes((code | 0x10,)) + len(data).to_bytes(4, "big") + data


def symbol(text: str) -> bytes:
    """Return the encoding of a symbol, a name of the protocol or of a broker."""
    return _sized(0xA3, text.encode())


def timestamp(milliseconds: int) -> bytes:
    """Return the encoding of a time, in milliseconds since the Unix epoch."""
    return b"\x83" + milliseconds.to_bytes(8, "big", signed=True)


def ubyte(value: int) -> bytes:
    """Return the encoding of an unsigned number of one byte."""
    return bytes((0x50, value))


def uint(value: int) -> bytes:
    """Return the encoding of an unsigned number of four bytes."""
    return b"\x70" + value.to_bytes(4, "big")


_WRITTEN: tuple[tuple[type, Callable[[Any], bytes]], ...] = (
    (NoneType, lambda _: NULL),
    (bool, lambda value: b"\x41" if value else b"\x42"),
    (Timestamp, timestamp),
    (int, _integer),
    (float, lambda value: b"\x82" + struct.pack(">d", value)),
    (bytes, lambda value: _sized(0xA0, value)),
    (UUID, lambda value: b"\x98" + value.bytes),
)


def _compound(code: int, values: Sequence[bytes], count: int) -> bytes:
    data = b"".join(values)
    if len(data) < _SMALL and count <= _SMALL:
        return bytes((code, len(data) + 1, count)) + data
    return bytes((code | 0x10,)) + (len(data) + 4).to_bytes(4, "big") + count.to_bytes(4, "big") + data


def list_of(values: Sequence[bytes]) -> bytes:
    """Return the encoding of a list of encoded values."""
    return _compound(0xC0, values, len(values))


def map_of(entries: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return the encoding of a map of encoded names and values."""
    return _compound(0xC1, [name + value for name, value in entries], 2 * len(entries))


def section(code: int, value: bytes) -> bytes:
    """Return the encoding of a message section with an encoded value."""
    return b"\x00\x53" + bytes((code,)) + value

"""AMQP encoding of the values that the library adds to a copy."""

from __future__ import annotations

import struct
from types import NoneType
from typing import TYPE_CHECKING, Any
from uuid import UUID

from redelivery_amqp.codec import Timestamp

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["NULL", "list_of", "map_of", "section", "simple", "symbol", "timestamp", "ubyte", "uint"]

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

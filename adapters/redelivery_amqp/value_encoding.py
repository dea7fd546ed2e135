"""Values written as AMQP encodes them: what the library adds to a copy, around what is copied as it came."""

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
# Bytes that a short form may have.
_SMALL = 255
_MOST_SIGNED = 2**63 - 1


def simple(value: object) -> bytes:
    """Return a simple value: what is none (a producer's list under one of our names) is written as text."""
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
    """Return a name of the protocol's, or of a broker's."""
    return _sized(0xA3, text.encode())


def timestamp(milliseconds: int) -> bytes:
    """Return a time: milliseconds since the Unix epoch."""
    return b"\x83" + milliseconds.to_bytes(8, "big", signed=True)


def ubyte(value: int) -> bytes:
    """Return a number of one byte."""
    return bytes((0x50, value))


def uint(value: int) -> bytes:
    """Return a number of four bytes."""
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
    """Return a list of encoded values."""
    return _compound(0xC0, values, len(values))


def map_of(entries: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return a map of encoded names and values."""
    return _compound(0xC1, [name + value for name, value in entries], 2 * len(entries))


def section(code: int, value: bytes) -> bytes:
    """Return a section of a message."""
    return b"\x00\x53" + bytes((code,)) + value

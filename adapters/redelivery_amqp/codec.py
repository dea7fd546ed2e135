"""AMQP 1.0 encodings, read in place: what a consumer's hot path needs, and no more.

A message is a row of sections. Their places are found when it arrives; what is in them is read when somebody asks,
because of a thousand messages that succeed most are asked for their body alone. Whatever is not known here raises
`Unknown`, and proton's own decoder takes over: it is 8 times as slow, and knows everything.
"""

from __future__ import annotations

import struct
import uuid
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "APPLICATION_PROPERTIES",
    "BODIES",
    "DATA",
    "HEADER",
    "MESSAGE_ANNOTATIONS",
    "PROPERTIES",
    "SEQUENCE",
    "VALUE",
    "Timestamp",
    "Unknown",
    "end_of",
    "read",
    "read_list",
    "read_map",
    "sections",
]

HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES = range(0x70, 0x75)
DATA, SEQUENCE, VALUE, FOOTER = range(0x75, 0x79)
BODIES = frozenset({DATA, SEQUENCE, VALUE})
_DESCRIBED = 0x00
_SMALL_ULONG = 0x53
# Bytes that follow a type's code, by its first half.
_FIXED = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}


class Unknown(ValueError):
    """An encoding that is left to proton."""


class Timestamp(int):
    """Milliseconds since the Unix epoch, where AMQP says that it is a time."""


def end_of(data: bytes, at: int) -> int:
    """Return where the value that begins at `at` ends. Raises Unknown; IndexError where the data end before it."""
    code = data[at]
    if code == _DESCRIBED:
        at += 1
        if data[at] == _DESCRIBED:
            raise Unknown("a descriptor that is described itself")  # as deep as a producer likes
        return end_of(data, end_of(data, at))
    kind = code >> 4
    if kind in (0xA, 0xC, 0xE):
        return at + 2 + data[at + 1]
    if kind in (0xB, 0xD, 0xF):
        return at + 5 + int.from_bytes(data[at + 1 : at + 5], "big")
    size = _FIXED.get(kind)
    if size is None:
        raise Unknown(f"type code {code:#x}")
    return at + 1 + size


def sections(data: bytes) -> list[tuple[int, int, int]]:
    """Return (code, begin of the value, end) of each section. Raises Unknown, also for what is no message."""
    found: list[tuple[int, int, int]] = []
    at, size = 0, len(data)
    try:
        while at < size:
            if data[at] != _DESCRIBED or data[at + 1] != _SMALL_ULONG:
                raise Unknown("a section with a long descriptor")
            if not HEADER <= data[at + 2] <= FOOTER:
                raise Unknown("a section that is none of a message's")
            end = end_of(data, at + 3)
            found.append((data[at + 2], at + 3, end))
            at = end
    except (IndexError, RecursionError):
        raise Unknown("a message that is cut off") from None
    if at != size:
        raise Unknown("a message that is cut off")
    return found


def _text(data: bytes) -> str:
    return data.decode()


def _bytes(data: bytes) -> bytes:
    return data


def _number(layout: str) -> Callable[[bytes], Any]:
    unpack = struct.Struct(layout).unpack
    return lambda data: unpack(data)[0]


def _unsigned(data: bytes) -> int:
    return int.from_bytes(data, "big")


def _signed(data: bytes) -> int:
    return int.from_bytes(data, "big", signed=True)


_READERS: dict[int, Callable[[bytes], Any]] = {
    0x40: lambda _: None, 0x41: lambda _: True, 0x42: lambda _: False, 0x56: lambda data: data != b"\0",
    0x43: lambda _: 0, 0x44: lambda _: 0,
    0x50: _unsigned, 0x52: _unsigned, 0x53: _unsigned, 0x60: _unsigned, 0x70: _unsigned, 0x80: _unsigned,
    0x51: _signed, 0x54: _signed, 0x55: _signed, 0x61: _signed, 0x71: _signed, 0x81: _signed,
    0x72: _number(">f"), 0x82: _number(">d"),
    0x83: lambda data: Timestamp(_signed(data)),
    0x98: lambda data: uuid.UUID(bytes=data),
    0xA0: _bytes, 0xB0: _bytes, 0xA1: _text, 0xB1: _text, 0xA3: _text, 0xB3: _text,
}  # fmt: skip


def _read(data: bytes, at: int) -> tuple[Any, int]:
    code = data[at]
    reader = _READERS.get(code)
    if reader is None:
        raise Unknown(f"type code {code:#x}")
    kind = code >> 4
    if kind == 0xA:
        begin = at + 2
        end = begin + data[at + 1]
    elif kind == 0xB:
        begin = at + 5
        end = begin + int.from_bytes(data[at + 1 : begin], "big")
    else:
        begin = at + 1
        end = begin + _FIXED[kind]
    return reader(data[begin:end]), end


# What reading raises where the data make no sense: cut off, or text that is not UTF-8.
_NONSENSE = (IndexError, ValueError, struct.error)


def read(data: bytes, at: int) -> tuple[Any, int]:
    """Return the simple value that begins at `at`, and where it ends. Raises Unknown for any other."""
    try:
        return _read(data, at)
    except _NONSENSE as error:
        raise Unknown(str(error)) from error


def _compound(data: bytes, at: int) -> tuple[int, int]:
    """Return how many values a list or map has, and where they begin."""
    code = data[at]
    if code in (0xC0, 0xC1):
        return data[at + 2], at + 3
    if code in (0xD0, 0xD1):
        return int.from_bytes(data[at + 5 : at + 9], "big"), at + 9
    if code == 0x45:
        return 0, at + 1
    raise Unknown(f"type code {code:#x} where a list or map should be")


def read_list(data: bytes, at: int, limit: int) -> list[Any]:
    """Return the first `limit` fields of a list of simple values; those that are missing are left out."""
    fields: list[Any] = []
    try:
        count, at = _compound(data, at)
        for _ in range(min(count, limit)):
            value, at = _read(data, at)
            fields.append(value)
    except _NONSENSE as error:
        raise Unknown(str(error)) from error
    return fields


def read_map(data: bytes, at: int) -> dict[str, Any]:
    """Return a map of text to simple values."""
    found: dict[str, Any] = {}
    try:
        count, at = _compound(data, at)
        for _ in range(count // 2):
            key, at = _read(data, at)
            if not isinstance(key, str):
                raise Unknown("a key that is no text")
            found[key], at = _read(data, at)
    except _NONSENSE as error:
        raise Unknown(str(error)) from error
    return found

"""Decoder of AMQP 1.0 for the hot path of a consumer; it reads values in place.

A message is a sequence of sections. Their places are found when the message arrives, and their values are decoded when
they are read: most handlers read only the body. Values that are not simple raise `Unknown`; `bounded_values` decodes
them. No input makes this module recurse, or run longer than in proportion to its length.
"""

from __future__ import annotations

import struct
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = [
    "APPLICATION_PROPERTIES",
    "BARE",
    "BINARIES",
    "BODIES",
    "DATA",
    "HEADER",
    "MESSAGE_ANNOTATIONS",
    "MOST_EMPTY",
    "MOST_ENTRIES",
    "PROPERTIES",
    "READERS",
    "SEQUENCE",
    "TEXTS",
    "VALUE",
    "Budget",
    "Timestamp",
    "Unknown",
    "compound",
    "decoded",
    "end_of",
    "read",
    "read_list",
    "read_map",
    "sections",
    "spans",
]


# ---- Codec -----------------------------------------------------------------------------------------------

HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES = range(0x70, 0x75)
DATA, SEQUENCE, VALUE, FOOTER = range(0x75, 0x79)
BODIES = frozenset({DATA, SEQUENCE, VALUE})
# Type codes of text and of bytes, with a length of one byte and of four.
TEXTS, BINARIES = (0xA1, 0xB1), (0xA0, 0xB0)
# Sections that the producer sent, and no broker changes.
BARE = BODIES | {PROPERTIES, APPLICATION_PROPERTIES}
_DESCRIBED, _NULL, _SHORT_TEXT = 0x00, 0x40, 0xA1
_SMALL_ULONG, _ULONG, _SYMBOL, _LONG_SYMBOL = 0x53, 0x80, 0xA3, 0xB3
# A section's descriptor may also be written as a name (AMQP 1.0 part 3, 3.2).
_NAMES = {
    b"amqp:header:list": HEADER,
    b"amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    b"amqp:message-annotations:map": MESSAGE_ANNOTATIONS,
    b"amqp:properties:list": PROPERTIES,
    b"amqp:application-properties:map": APPLICATION_PROPERTIES,
    b"amqp:data:binary": DATA,
    b"amqp:amqp-sequence:list": SEQUENCE,
    b"amqp:amqp-value:*": VALUE,
    b"amqp:footer:map": FOOTER,
}
_LONGEST_NAME = max(map(len, _NAMES))
# Most values of a section's list or map: the connection's thread decodes them, some millions in a second.
MOST_ENTRIES = 100_000
# A producer may split a body into sections, one for each line or each piece that it reads.
MOST_SECTIONS, SHORTEST = 1000, 64
_STRETCH = 4096
# Bytes after a type code, by the first half of the code.
_FIXED = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}


class Unknown(ValueError):
    """Encoding that is not decoded here."""


class Timestamp(int):
    """AMQP timestamp: milliseconds since the Unix epoch."""


def end_of(data: bytes, at: int) -> int:
    """Return where the value that begins at `at` ends. Raises Unknown; IndexError if the data end before it."""
    code = data[at]
    # A described value is two values, and each of them can be described again, without a limit.
    more = 0
    while True:
        kind = code >> 4
        if kind in (0xA, 0xC, 0xE):
            at += 2 + data[at + 1]
        elif kind in (0xB, 0xD, 0xF):
            at += 5 + int.from_bytes(data[at + 1 : at + 5], "big")
        elif (size := _FIXED.get(kind)) is not None:
            at += 1 + size
        elif code == _DESCRIBED:
            at += 1
            more += 2
        else:
            raise Unknown(f"type code {code:#x}")
        if not more:
            return at
        more -= 1
        code = data[at]


def _section(data: bytes, at: int) -> tuple[int, int]:
    """Return the code of the section that begins at `at`, and where its value begins; for any form of descriptor."""
    form = data[at + 1]
    if data[at] != _DESCRIBED:
        raise Unknown("no section")
    if form == _SMALL_ULONG:
        code, begin = data[at + 2], at + 3
    elif form == _ULONG:
        begin = at + 10
        code = int.from_bytes(data[at + 2 : begin], "big")
    elif form in (_SYMBOL, _LONG_SYMBOL):
        head = at + (3 if form == _SYMBOL else 6)
        begin = head + int.from_bytes(data[at + 2 : head], "big")
        code = _NAMES.get(data[head : min(begin, head + _LONGEST_NAME + 1)], 0)
    else:
        raise Unknown("a section whose descriptor is no number and no name")
    if not HEADER <= code <= FOOTER:
        raise Unknown("a section that is none of a message's")
    return code, begin


def sections(data: bytes) -> list[tuple[int, int, int]]:
    """Return (code, begin of the value, end) of each section. Raises Unknown, also if this is not a message.

    A section begins where the one before it ends. More sections than `MOST_SECTIONS` plus one for every `SHORTEST`
    bytes are not taken for a message: each costs a hundred times its bytes when it arrives.
    """
    found: list[tuple[int, int, int]] = []
    at, size = 0, len(data)
    stop = size if size < _STRETCH else _STRETCH  # noqa: FURB136 - `min` is a call
    try:
        while True:
            while at < stop:
                code, begin = data[at + 2], at + 3
                # Literals, because module names cost time: the short form of a descriptor, from header to footer.
                if data[at] or data[at + 1] != 0x53 or not 0x70 <= code <= 0x78:
                    code, begin = _section(data, at)
                at = end_of(data, begin)
                found.append((code, begin, at))
            # Counted once per 4,096 bytes, which can hold about a thousand sections: most messages have ended by then.
            if len(found) > MOST_SECTIONS + at // SHORTEST:
                raise Unknown("more sections than are read")
            if at >= size:
                break
            stop = min(size, at + _STRETCH)
    except IndexError:
        raise Unknown("a message that is cut off") from None
    if at != size:
        raise Unknown("a message that is cut off")
    return found


def spans(places: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Return (begin, end, code) of each section with its descriptor; `places` are those of all sections."""
    begins = [0, *(end for _, _, end in places)]
    return [(begin, end, code) for begin, (code, _, end) in zip(begins, places, strict=False)]


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


READERS: dict[int, Callable[[bytes], Any]] = {
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
    reader = READERS.get(code)
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


# Errors of data that cannot be decoded: cut off, or text that is not UTF-8.
_NONSENSE = (IndexError, ValueError, struct.error)


def read(data: bytes, at: int) -> tuple[Any, int]:
    """Return the simple value that begins at `at`, and where it ends. Raises Unknown for other values."""
    try:
        return _read(data, at)
    except _NONSENSE as error:
        raise Unknown(str(error)) from error


def compound(data: bytes, at: int) -> tuple[int, int, int]:
    """Return the number of values of a list or map, where they begin, and where they end."""
    code = data[at]
    if code in (0xC0, 0xC1):
        size, count, begin = data[at + 1], data[at + 2], at + 3
        end = at + 2 + size
    elif code in (0xD0, 0xD1):
        begin = at + 9
        size, count = (
            int.from_bytes(data[at + 1 : at + 5], "big"),
            int.from_bytes(data[at + 5 : begin], "big"),
        )
        end = at + 5 + size
    elif code == 0x45:
        return 0, at + 1, at + 1
    else:
        raise Unknown(f"type code {code:#x} where a list or map should be")
    # Each value has at least one byte. Without this check a false count would make the decoder read past the end.
    if count > size or count > MOST_ENTRIES:
        raise Unknown("more values than there is room for")
    return count, begin, end


def read_list(data: bytes, at: int, limit: int) -> list[Any]:
    """Return the first `limit` fields of a list of simple values, or fewer if the list has fewer."""
    fields: list[Any] = []
    try:
        count, at, end = compound(data, at)
        for _ in range(min(count, limit)):
            # Written out for speed: most fields are text or null.
            code = data[at]
            if code == _NULL:
                at += 1
                fields.append(None)
            elif code == _SHORT_TEXT:
                begin = at + 2
                at = begin + data[at + 1]
                fields.append(data[begin:at].decode())
            else:
                value, at = _read(data, at)
                fields.append(value)
    except _NONSENSE as error:
        raise Unknown(str(error)) from error
    if at > end:
        raise Unknown("more values than there is room for")
    return fields


def read_map(data: bytes, at: int) -> dict[str, Any]:
    """Return a map of text to simple values."""
    found: dict[str, Any] = {}
    try:
        count, at, end = compound(data, at)
        for _ in range(count // 2):
            # Written out for speed: all usual keys are short texts, and most values.
            if data[at] == _SHORT_TEXT:
                begin = at + 2
                at = begin + data[at + 1]
                key = data[begin:at].decode()
            else:
                key, at = _read(data, at)
                if not isinstance(key, str):
                    raise Unknown("a key that is no text")
            if data[at] == _SHORT_TEXT:
                begin = at + 2
                at = begin + data[at + 1]
                found[key] = data[begin:at].decode()
            else:
                found[key], at = _read(data, at)
    except _NONSENSE as error:
        raise Unknown(str(error)) from error
    if at > end:
        raise Unknown("more values than there is room for")
    return found


# ---- Bounded values --------------------------------------------------------------------------------------
# Bounded decoder for AMQP values of every type: no producer can make it crash, recurse or run for long.
#
# proton's decoder gets no bytes of a received message, and its encoder no decoded value: one valid message of twenty
# bytes crashes the process in the encoder (docs/measured/amqp-bad-input.md).

DEEPEST_SHOWN = 100
"""Deepest nesting of a value for an application: its own code may recurse, as `repr`, `==` and `json` do."""
MOST_VALUES = 1_000_000
"""Most values inside one that an application reads: about a million are decoded in a second."""
MOST_EMPTY = 65_536
"""Most elements without bytes (nulls, empty lists) in the arrays of a value: four billion of them need ten bytes."""
MOST_NUMBERS = 1000
"""Most keys of one map that are neither text nor binary. Their hashes are not salted as those of text are: a producer
can choose numbers that collide, and the time for a map grows with the square of their count."""
MOST_UUIDS = 64
"""Most UUIDs among these keys: any number of UUIDs can have one hash."""

_SCALARS = frozenset({
    0x40, 0x41, 0x42, 0x43, 0x44, 0x45, 0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56, 0x60, 0x61, 0x70, 0x71, 0x72, 0x73,
    0x74, 0x80, 0x81, 0x82, 0x83, 0x84, 0x94, 0x98, 0xA0, 0xA1, 0xA3, 0xB0, 0xB1, 0xB3,
})  # fmt: skip
_WIDTHS = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}
_DESCRIPTION, _LIST0, _NO_BYTES = 0x00, 0x45, 0x4
_LISTS, _MAPS, _ARRAYS = (0xC0, 0xD0), (0xC1, 0xD1), (0xE0, 0xF0)
_SCALAR, _OPEN, _CLOSE, _EMPTY = range(4)


# (_SCALAR, code, begin, end), (_EMPTY, code, how many, 0), (_OPEN, code, 0, 0) or (_CLOSE, 0, 0, 0)
_Token = tuple[int, int, int, int]


class _Level(NamedTuple):
    """A value that contains others."""

    end: int
    constructor: int | None
    """Type code of each element of an array; None: not an array."""
    fills: bool
    """True if the inner values must end where this value does; a description has no end of its own."""
    left: int = 0
    """Number of inner values that are still to be read, while one of them is being read."""


class Budget:
    """Number of values that may still be read of one message."""

    __slots__ = ("empty", "values")

    def __init__(self, values: int = MOST_VALUES, empty: int = MOST_EMPTY) -> None:
        self.values = values
        self.empty = empty

    @property
    def spent(self) -> bool:
        """True if no more values are read."""
        return self.values < 0


def decoded(data: bytes, at: int, end: int, budget: Budget | None = None, *, text_keys: bool = False) -> Any:
    """Return the value from `at` to `end` in Python's own types. Raises Unknown if it cannot be decoded.

    A described value is returned without its description, an array as a list, a decimal number as its bits.
    `text_keys`: the keys of maps become text.
    """
    code, found = 0, list[Any]()
    around: list[tuple[int, list[Any]]] = []
    try:
        for token, kind, begin, finish in _Walk(data, at, end, budget or Budget()).tokens():
            if token == _SCALAR:
                found.append(_scalar(data, kind, begin, finish))
            elif token == _EMPTY:
                found += [[] for _ in range(begin)] if kind == _LIST0 else [_scalar(data, kind, 0, 0)] * begin
            elif token == _OPEN:
                around.append((code, found))
                code, found = kind, []
            else:
                made = (
                    _map(found, text_keys=text_keys)
                    if code in _MAPS
                    else found[1]
                    if code == _DESCRIPTION
                    else found
                )
                code, found = around.pop()
                found.append(made)
    except (IndexError, ValueError, OverflowError) as error:
        # Cut off, text that is not UTF-8, or a character that Unicode does not have.
        raise Unknown(str(error)) from error
    return found[0]


def _map(found: list[Any], *, text_keys: bool) -> dict[Any, Any]:
    keys = found[::2]
    numbers = uuids = 0
    for key in keys:
        kind = key.__class__
        if kind is list or kind is dict:
            raise Unknown("a list or map as the key of a map")
        if kind is not str and kind is not bytes:
            numbers += 1
            if kind is UUID:
                uuids += 1
    if text_keys:
        keys = [str(key) for key in keys]
    elif numbers > MOST_NUMBERS or uuids > MOST_UUIDS:
        raise Unknown("a map of more keys that are no text than are read")
    return dict(zip(keys, found[1::2], strict=True))


def _scalar(data: bytes, code: int, begin: int, end: int) -> Any:
    if code == _LIST0:
        return []
    if code == 0x73:
        # The text decoder refuses half of a surrogate pair.
        return data[begin:end].decode("utf-32-be")
    if code in (0x74, 0x84):
        return int.from_bytes(data[begin:end], "big")
    return data[begin:end] if code == 0x94 else READERS[code](data[begin:end])


class _Walk:
    """One walk over a value, part by part."""

    def __init__(self, data: bytes, at: int, end: int, budget: Budget) -> None:
        if end > len(data):
            raise Unknown("a value that is cut off")
        self._data = data
        self._at = at
        self._budget = budget
        self._around: list[_Level] = []
        self._level = _Level(end, None, fills=True)
        self._left = 1

    def tokens(self) -> Iterator[_Token]:
        """Yield the parts of the value in order. Raises Unknown, or IndexError, where it cannot be decoded."""
        while True:
            if self._left:
                yield self._next()
                continue
            level = self._level
            if self._at > level.end or (level.fills and self._at != level.end):
                raise Unknown("a value whose size is wrong")
            if not self._around:
                return
            self._level = self._around.pop()
            self._left = self._level.left
            yield _CLOSE, 0, 0, 0

    def _next(self) -> _Token:
        end, code = self._level.end, self._level.constructor
        self._left -= 1
        self._budget.values -= 1
        if self._budget.values < 0:
            raise Unknown("more values than are read")
        if code is None:
            if self._at >= end:
                raise Unknown("a value that is cut off")
            code = self._data[self._at]
            self._at += 1
        elif code >> 4 == _NO_BYTES:
            return self._elements(code)
        if code in _SCALARS:
            begin, finish = _scalar_place(self._data, self._at, code)
            if finish > end:
                raise Unknown("a value that is cut off")
            self._at = finish
            return _SCALAR, code, begin, finish
        if len(self._around) >= DEEPEST_SHOWN:
            raise Unknown("values inside values, deeper than they are read")
        self._around.append(self._level._replace(left=self._left))
        self._left, self._at, self._level = _opened(self._data, self._at, end, code)
        return _OPEN, code, 0, 0

    def _elements(self, code: int) -> _Token:
        """Return all remaining elements of an array whose elements have no bytes."""
        if code not in _SCALARS:
            raise Unknown(f"type code {code:#x}")
        count, self._left = self._left + 1, 0
        if count > self._budget.empty:
            # The budget stays unchanged: the entries after this one can be read.
            raise Unknown("more values than are read")
        self._budget.empty -= count
        return _EMPTY, code, count, 0


def _scalar_place(data: bytes, at: int, code: int) -> tuple[int, int]:
    kind = code >> 4
    if kind == 0xA:
        return at + 1, at + 1 + data[at]
    if kind == 0xB:
        return at + 4, at + 4 + int.from_bytes(data[at : at + 4], "big")
    return at, at + _WIDTHS[kind]


def _opened(data: bytes, at: int, end: int, code: int) -> tuple[int, int, _Level]:
    """Return the number of inner values, where they begin, and the level that they are on."""
    if code == _DESCRIPTION:
        return 2, at, _Level(end, None, fills=False)
    if code not in (*_LISTS, *_MAPS, *_ARRAYS):
        raise Unknown(f"type code {code:#x}")
    width = 4 if code & 0x10 else 1
    size, begin = int.from_bytes(data[at : at + width], "big"), at + 2 * width
    count = int.from_bytes(data[at + width : begin], "big")
    finish = at + width + size
    if finish > end or begin > finish:
        raise Unknown("a value that is cut off")
    if code not in _ARRAYS:
        if count > finish - begin or (code in _MAPS and count % 2):
            raise Unknown("a list or map whose count is wrong")
        return count, begin, _Level(finish, None, fills=True)
    constructor = data[begin]
    begin += 1
    # The description of the elements is left out, as that of a single value is.
    while constructor == _DESCRIPTION:
        begin = end_of(data, begin) + 1
        constructor = data[begin - 1]
    return count, begin, _Level(finish, constructor, fills=True)

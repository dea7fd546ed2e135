"""Bounded decoder for AMQP values of every type: no producer can make it crash, recurse or run for long.

proton's decoder gets no bytes of a received message, and its encoder no decoded value: one valid message of twenty
bytes crashes the process in the encoder (docs/measured/amqp-bad-input.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from redelivery_amqp import codec
from redelivery_amqp.codec import Unknown

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["DEEPEST_SHOWN", "MOST_EMPTY", "MOST_NUMBERS", "MOST_UUIDS", "Budget", "decoded"]

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
_DESCRIBED, _LIST0, _NO_BYTES = 0x00, 0x45, 0x4
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
                    if code == _DESCRIBED
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
    return data[begin:end] if code == 0x94 else codec.READERS[code](data[begin:end])


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
    if code == _DESCRIBED:
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
    while constructor == _DESCRIBED:
        begin = codec.end_of(data, begin) + 1
        constructor = data[begin - 1]
    return count, begin, _Level(finish, constructor, fills=True)

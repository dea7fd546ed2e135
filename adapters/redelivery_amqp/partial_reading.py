"""Reader of parts of a section: it reads as much as is asked for and can be decoded. Nothing here raises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redelivery_amqp import codec
from redelivery_amqp.bounded_values import Budget, decoded

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = [
    "LargeMaps",
    "entries_in",
    "fields_in",
    "key_name",
    "map_in",
    "places_in",
    "short_keys",
    "texts_in",
]

KEPT = 100
"""Most entries of a section that are kept after reading: each needs some hundred bytes more than its own."""

_MOST_IN_KEY = 10
_TEXT = 0xA1
_TEXTS = frozenset({_TEXT, 0xB1, 0xA3, 0xB3})


class LargeMaps:
    """Cache of one message's maps that are too large to be kept for every message: those of the last message read.

    The engine, the log and the copy read them several times, and reading 49,000 properties takes a second. Used by
    several threads: what one of them replaces, another one reads again.
    """

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: tuple[object, dict[int, dict[str, Any]]] | None = None

    def of(self, message: object) -> dict[int, dict[str, Any]] | None:
        """Return the cached maps of a message by section code; None: it is not the last one."""
        last = self._last
        return last[1] if last is not None and last[0] is message else None

    def read(
        self, message: object, data: bytes, code: int, at: int | None, *, keeps: bool
    ) -> tuple[dict[str, Any], bool]:
        """Return a section of a message as `map_in` does. If `keeps`, a large one replaces what is cached."""
        kept = self.of(message) or {}
        if code in kept:
            return kept[code], False
        found, small = map_in(data, at)
        if keeps and not small:
            self._last = message, {**kept, code: found}
        return found, small

    def forget(self, messages: Sequence[object]) -> None:
        """Drop the cached maps of these messages: they are settled, or parked."""
        last = self._last
        # Runs for each settled message: mostly nothing is cached.
        if last is not None and any(each is last[0] for each in messages):
            self._last = None


def places_in(data: bytes, at: int, limit: int) -> Iterator[tuple[int, int]]:
    """Yield (begin, end) of each of the first `limit` values of a list or map, as far as they can be found."""
    try:
        count, at, end = codec.compound(data, at)
        for _ in range(min(count, limit)):
            begin, at = at, codec.end_of(data, at)
            if at > end or at > len(data):
                return
            yield begin, at
    except (IndexError, codec.Unknown):
        return


def fields_in(data: bytes, at: int, limit: int) -> list[Any]:
    """Return the first `limit` fields of a list; None for one that is not a simple value or cannot be decoded."""
    fields: list[Any] = []
    for begin, _ in places_in(data, at, limit):
        try:
            fields.append(codec.read(data, begin)[0])
        except codec.Unknown:
            fields.append(None)
    return fields


def texts_in(data: bytes, at: int, keys: Mapping[bytes, str]) -> dict[str, str]:
    """Return the text values of a map's entries with these `keys`, by name; no other entry is decoded.

    A key is given as `short_keys` encodes it.
    """
    found: dict[str, str] = {}
    try:
        count, at, end = codec.compound(data, at)
        for _ in range(count // 2):
            begin = at + 2 + data[at + 1] if data[at] == _TEXT else codec.end_of(data, at)
            name = keys.get(data[at:begin])
            at = codec.end_of(data, begin)
            if at > end:
                break
            if name is not None and data[begin] in _TEXTS:
                found[name] = codec.read(data, begin)[0]
    except (IndexError, codec.Unknown):
        pass
    return found


def short_keys(*names: str) -> dict[bytes, str]:
    """Return these names by their encoding as keys: strings with a length of one byte, as all libraries write them."""
    return {bytes((_TEXT, len(name))) + name.encode(): name for name in names}


def entries_in(data: bytes, at: int) -> Iterator[tuple[int, int, int]]:
    """Yield (begin of the key, begin of the value, end of the value) of each entry of a map."""
    key: tuple[int, int] | None = None
    for place in places_in(data, at, codec.MOST_ENTRIES):
        if key is None:
            key = place
        else:
            yield key[0], place[0], place[1]
            key = None


def key_name(data: bytes, begin: int, end: int) -> str | None:
    """Return a key as text; None for one that is not a simple value."""
    try:
        if data[begin] in codec.READERS:
            key: Any = codec.read(data, begin)[0]
        else:
            # Perhaps a described value. A larger one is not a name, and each of thousands of keys could be an array.
            key = decoded(data, begin, end, Budget(_MOST_IN_KEY, empty=0))
    except codec.Unknown:
        return None
    return None if isinstance(key, list | dict) else str(key)


def map_in(data: bytes, at: int | None) -> tuple[dict[str, Any], bool]:
    """Return the entries of a map that can be read, and True if they may be kept as long as their message.

    Nested values can need a hundred thousand times the memory of their bytes. Keys, also those of inner maps, are text:
    JSON has no others.
    """
    if at is None:
        return {}, True
    try:
        found = codec.read_map(data, at)
    except codec.Unknown:
        return _entry_by_entry(data, at), False
    return found, len(found) <= KEPT


def _entry_by_entry(data: bytes, at: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    budget = Budget(codec.MOST_ENTRIES)
    for begin, middle, end in entries_in(data, at):
        name = key_name(data, begin, middle)
        if name is None:
            continue
        try:
            found[name] = decoded(data, middle, end, budget, text_keys=True)
        except codec.Unknown:
            # Of two entries with one name the last one counts, even if it cannot be read.
            found.pop(name, None)
            if budget.spent:
                break
    return found

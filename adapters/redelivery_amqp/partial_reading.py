"""What can be read of a section, and no more of it than is asked for; nothing here raises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redelivery_amqp import codec
from redelivery_amqp.bounded_values import Budget, decoded

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["entries_in", "fields_in", "key_name", "map_in", "places_in", "short_keys", "texts_in"]

KEPT = 100
"""Most entries of a section that are kept once they are read: each takes some hundred bytes besides its own."""

_TEXT = 0xA1
_TEXTS = frozenset({_TEXT, 0xB1, 0xA3, 0xB3})


def places_in(data: bytes, at: int, limit: int) -> Iterator[tuple[int, int]]:
    """Yield where each of the first `limit` values of a list or map begins and ends, as far as they can be found."""
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
    """Return what can be read of the first `limit` fields of a list: None for one that is not simple, or no value."""
    fields: list[Any] = []
    for begin, _ in places_in(data, at, limit):
        try:
            fields.append(codec.read(data, begin)[0])
        except codec.Unknown:
            fields.append(None)
    return fields


def texts_in(data: bytes, at: int, keys: Mapping[bytes, str]) -> dict[str, str]:
    """Return those of a map's entries whose values are text, by the names of their `keys`; no other is looked at.

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
    """Return the keys with these names as each library writes them: as a string of one byte's length."""
    return {bytes((_TEXT, len(name))) + name.encode(): name for name in names}


def entries_in(data: bytes, at: int) -> Iterator[tuple[int, int, int]]:
    """Yield where the key of each entry of a map begins, where its value does, and where that ends."""
    key: tuple[int, int] | None = None
    for place in places_in(data, at, codec.MOST_ENTRIES):
        if key is None:
            key = place
        else:
            yield key[0], place[0], place[1]
            key = None


def key_name(data: bytes, begin: int, end: int) -> str | None:
    """Return a key as text, or None for one that is no simple value."""
    try:
        key = codec.read(data, begin)[0] if data[begin] in codec.READERS else decoded(data, begin, end)
    except codec.Unknown:
        return None
    return None if isinstance(key, list | dict) else str(key)


def map_in(data: bytes, at: int | None) -> tuple[dict[str, Any], bool]:
    """Return the entries of a map that can be read, and whether they may be kept while their message waits here.

    Nested values may take a hundred thousand times the room of their bytes. Keys, also of maps inside, are text: JSON
    has no others.
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
            # Of two with one name the last counts, whatever it is.
            found.pop(name, None)
            if budget.spent:
                break
    return found

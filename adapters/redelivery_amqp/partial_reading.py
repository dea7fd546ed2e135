"""What can be read of a section, and no more of it than is asked for; nothing here raises."""

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
"""Most entries of a section that are kept once they are read: each takes some hundred bytes besides its own."""

_MOST_IN_KEY = 10
_TEXT = 0xA1
_TEXTS = frozenset({_TEXT, 0xB1, 0xA3, 0xB3})


class LargeMaps:
    """The maps of one message that are too large to be kept for each: of the last one that was asked for them.

    The engine, the log and the copy ask several times, and reading 49,000 properties takes a second. Used from several
    threads; what one of them replaces is read again by the other.
    """

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: tuple[object, dict[int, dict[str, Any]]] | None = None

    def of(self, message: object) -> dict[int, dict[str, Any]] | None:
        """Return what is kept of a message, by section, if it is the last one."""
        last = self._last
        return last[1] if last is not None and last[0] is message else None

    def read(
        self, message: object, data: bytes, code: int, at: int | None, *, keeps: bool
    ) -> tuple[dict[str, Any], bool]:
        """Return a section of a message as `map_in` does; a large one is kept, if it may be, and no other message's."""
        kept = self.of(message) or {}
        if code in kept:
            return kept[code], False
        found, small = map_in(data, at)
        if keeps and not small:
            self._last = message, {**kept, code: found}
        return found, small

    def forget(self, messages: Sequence[object]) -> None:
        """Keep nothing of these: they are settled, or wait."""
        last = self._last
        # For each message that is settled: mostly there is none.
        if last is not None and any(each is last[0] for each in messages):
            self._last = None


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
        if data[begin] in codec.READERS:
            key: Any = codec.read(data, begin)[0]
        else:
            # Described, perhaps. One that has more in it than that is no name, and each of thousands may be an array.
            key = decoded(data, begin, end, Budget(_MOST_IN_KEY, empty=0))
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

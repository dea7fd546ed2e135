"""What can be read of a section, and no more of it than is asked for; nothing here raises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redelivery_amqp import codec
from redelivery_amqp.bounded_values import decoded
from redelivery_amqp.plain_values import with_text_keys

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["fields_in", "map_in", "properties_in", "short_keys", "texts_in"]

KEPT = 100
"""Most application properties that are kept once they are read: each takes some hundred bytes besides its own."""

_TEXT = 0xA1
_TEXTS = frozenset({_TEXT, 0xB1, 0xA3, 0xB3})


def fields_in(data: bytes, at: int, limit: int) -> list[Any]:
    """Return what can be read of the first `limit` fields of a list: None for one that is not simple, or no value."""
    fields: list[Any] = []
    try:
        count, at, end = codec.compound(data, at)
        for _ in range(min(count, limit)):
            begin, at = at, codec.end_of(data, at)
            if at > end:
                break
            try:
                fields.append(codec.read(data, begin)[0])
            except codec.Unknown:
                fields.append(None)
    except (IndexError, codec.Unknown):
        pass
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


def properties_in(data: bytes, at: int | None) -> tuple[dict[str, Any], bool]:
    """Return application properties, and whether they may be kept while their message waits here.

    Nested values may take a hundred thousand times the room of their bytes.
    """
    if at is None:
        return {}, True
    try:
        found = codec.read_map(data, at)
    except codec.Unknown:
        return map_in(data, at), False
    return found, len(found) <= KEPT


def map_in(data: bytes, at: int | None) -> dict[str, Any]:
    """Return the map that a section has for its value; nothing if any of it makes no sense, or is nested deep."""
    if at is None:
        return {}
    try:
        return codec.read_map(data, at)
    except codec.Unknown:
        pass
    try:
        found = decoded(data, at, codec.end_of(data, at))
    except (IndexError, codec.Unknown):
        return {}
    return with_text_keys(found) if isinstance(found, dict) else {}

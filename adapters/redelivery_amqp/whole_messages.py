"""Check whether the copy of a message can be the same message, and the places of its body."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from redelivery_amqp import codec

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["body_places", "copyable"]

_LARGE_MAP, _LARGE_LIST = 0xD1, 0xD0
_SEVERAL = frozenset({codec.DATA, codec.SEQUENCE})
# Values, and sections, that a copy can have more than its original.
ROOM = 100


def copyable(raw: bytes, places: Sequence[tuple[int, int, int]]) -> bool:
    """True if the copy of a message can be the same message, and can be read.

    False with more properties or annotations than are read, because the handler has not seen all of them. False also if
    a section that is allowed once occurs twice, or if the body is in separate places: the handler has not seen one of
    them, and the copy would lose it.
    """
    if not places or not _once_each(places):
        return False
    if len(places) > codec.MOST_SECTIONS - ROOM and _crowded(places):
        return False
    return all(
        _count(raw, begin) <= codec.MOST_ENTRIES - ROOM
        for code, begin, _ in places
        if code in (codec.APPLICATION_PROPERTIES, codec.MESSAGE_ANNOTATIONS)
    )


def body_places(places: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Return (begin, end, code) of each section of the body, with its descriptor."""
    return [span for span in codec.spans(places) if span[2] in codec.BODIES]


def _once_each(places: Sequence[tuple[int, int, int]]) -> bool:
    """True if each section occurs once; several data or sequence sections are allowed next to each other."""
    seen: set[int] = set()
    last = 0
    for code, _, _ in places:
        if code == last and code in _SEVERAL:
            continue
        if code in seen or (code in codec.BODIES and not seen.isdisjoint(codec.BODIES)):
            return False
        seen.add(code)
        last = code
    return True


def _crowded(places: Sequence[tuple[int, int, int]]) -> bool:
    """True if the body has nearly as many sections for its bytes as `codec.sections` reads."""
    found = [end - begin for begin, end, _ in body_places(places)]
    return any(
        number + ROOM > codec.MOST_SECTIONS + size // codec.SHORTEST
        for number, size in enumerate(itertools.accumulate(found), 1)
    )


def _count(raw: bytes, at: int) -> int:
    """Return the count in a section's map; 0 if its bytes cannot hold that many values."""
    if raw[at] not in (_LARGE_MAP, _LARGE_LIST):
        return 0
    size, count = int.from_bytes(raw[at + 1 : at + 5], "big"), int.from_bytes(raw[at + 5 : at + 9], "big")
    return count if count <= size else 0

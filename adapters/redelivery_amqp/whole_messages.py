"""Whether a copy of a message can be the same message, and what body it has then."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from redelivery_amqp import codec

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["body_places", "copyable"]

_LARGE_MAP, _LARGE_LIST = 0xD1, 0xD0
_SEVERAL = frozenset({codec.DATA, codec.SEQUENCE})
# Values, and sections, that a copy has more than what it is made of.
ROOM = 100


def copyable(raw: bytes, places: Sequence[tuple[int, int, int]]) -> bool:
    """Whether the copy of a message can be the same message, and can be read as it.

    Not so with more properties than are read, as who handled it has not seen these; nor with a section twice that there
    may be once, or a body in pieces: one of them was not seen either, and would be lost.
    """
    if not places or not _once_each(places):
        return False
    if len(places) > codec.MOST_SECTIONS - ROOM and _crowded(places):
        return False
    for code, begin, _ in places:
        if code == codec.APPLICATION_PROPERTIES:
            return _count(raw, begin) <= codec.MOST_ENTRIES - ROOM
    return True


def body_places(places: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Return (begin, end, code) of each section of the body, with its descriptor."""
    return [span for span in codec.spans(places) if span[2] in codec.BODIES]


def _once_each(places: Sequence[tuple[int, int, int]]) -> bool:
    """Whether each section is there once; of data or sequences there may be several, side by side."""
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
    """Whether the body alone has nearly as many sections somewhere as are read of so many bytes."""
    found = [end - begin for begin, end, _ in body_places(places)]
    return any(
        number + ROOM > codec.MOST_SECTIONS + size // codec.SHORTEST
        for number, size in enumerate(itertools.accumulate(found), 1)
    )


def _count(raw: bytes, at: int) -> int:
    """Return how many values a section's map says that it has; none where there is no room for so many."""
    if raw[at] not in (_LARGE_MAP, _LARGE_LIST):
        return 0
    size, count = int.from_bytes(raw[at + 1 : at + 5], "big"), int.from_bytes(raw[at + 5 : at + 9], "big")
    return count if count <= size else 0

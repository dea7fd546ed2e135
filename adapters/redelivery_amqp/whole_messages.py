"""Whether a copy of a message can be the same message, and what body it has then."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from redelivery_amqp import codec

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["body_places", "copyable"]

_LARGE_MAP, _LARGE_LIST = 0xD1, 0xD0
# Values, and sections, that a copy has more than what it is made of.
ROOM = 100


def copyable(raw: bytes, places: Sequence[tuple[int, int, int]]) -> bool:
    """Whether there is a message, and no more properties than are read: who handled it has not seen these either.

    And whether its copy can be read: that has a header and properties of its own before the same body.
    """
    if len(places) > codec.MOST_SECTIONS - ROOM and _crowded(places):
        return False
    for code, begin, _ in places:
        if code == codec.APPLICATION_PROPERTIES:
            return _count(raw, begin) <= codec.MOST_ENTRIES - ROOM
    return bool(places)


def _crowded(places: Sequence[tuple[int, int, int]]) -> bool:
    """Whether the body alone has nearly as many sections somewhere as are read of so many bytes."""
    found = [end - begin for begin, end, code in codec.spans(places) if code in codec.BODIES]
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


def body_places(raw: bytes, places: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Return (begin, end, code) of each section of the body, with its descriptor.

    All of them, unless they are mixed with other sections: then those that the body was taken from, so that the copy,
    where they stand side by side, has the same.
    """
    found = [span for span in codec.spans(places) if span[2] in codec.BODIES]
    if len(found) < 2:
        return found
    code, begin, _ = places[-1]
    if code == codec.DATA != places[-2][0] and raw[begin] in codec.BINARIES:
        # Where it is not the only one, a footer may stand before it.
        return found[-1:]
    codes = [code for code, _, _ in places if code in codec.BODIES or code < codec.DATA]
    if codes == sorted(codes):
        return found
    others = [span for span in found if span[2] != codec.DATA]
    return others[:1] or found

"""Bodies other than one data section: several data sections, a value, a sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery_amqp import codec

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["other_body", "payload"]


def other_body(raw: bytes, places: Sequence[tuple[int, int, int]]) -> bytes | None:
    """Return the body: text as UTF-8, other values as they are encoded; None if this is not a message."""
    if not places:
        return None
    data: list[bytes] = []
    for code, begin, end in places:
        if code == codec.DATA:
            kind = raw[begin]
            if kind not in codec.BINARIES:
                return None
            data.append(raw[begin + (2 if kind < 0xB0 else 5) : end])
        elif code == codec.VALUE:
            kind = raw[begin]
            if kind in codec.TEXTS or kind in codec.BINARIES:
                return raw[begin + (2 if kind < 0xB0 else 5) : end]
            return b"" if kind == 0x40 else raw[begin:end]
        elif code == codec.SEQUENCE:
            return raw[begin:end]
    return b"".join(data)


def payload(raw: bytes, places: Sequence[tuple[int, int, int]]) -> int | None:
    """Return where the bytes of the body begin, if it is one data section and the last section; else None."""
    if not places or places[-1][0] != codec.DATA or (len(places) > 1 and places[-2][0] == codec.DATA):
        return None
    begin = places[-1][1]
    kind = raw[begin]
    return begin + (2 if kind < 0xB0 else 5) if kind in codec.BINARIES else None

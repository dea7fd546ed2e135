"""Bare message: the bytes of properties, application properties and body, which no broker changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery_amqp import codec

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["bare"]


def bare(raw: bytes, places: Sequence[tuple[int, int, int]]) -> list[memoryview]:
    """Return the bare message in pieces to be joined: its sections unchanged, each with its descriptor.

    Bytes that are not a message are returned whole. `places` are those of all sections, before the body is dropped.
    """
    whole = memoryview(raw)
    if not places:
        return [whole]
    pieces: list[memoryview] = []
    since = until = 0
    for code, _, end in places:
        if code in codec.BARE:
            until = end
            continue
        if until > since:
            pieces.append(whole[since:until])
        since = end
    if until > since:
        pieces.append(whole[since:until])
    return pieces

"""What the producer sent and no broker changes: the bytes of properties, application properties and body."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery_amqp import codec

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["bare"]


def bare(raw: bytes, places: Sequence[tuple[int, int, int]]) -> list[memoryview]:
    """Return these sections of a message as they came, each with its descriptor, in pieces to be put together.

    Of what is no message it is all that came. `places` are those of all sections, before the body is let go of.
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

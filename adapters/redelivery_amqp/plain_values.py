"""Ids and times of AMQP as an application sees them, and as keys of the library's own tables."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

__all__ = ["SaltedUUID", "text_of", "time_of"]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class SaltedUUID(UUID):
    """UUID as a key of a table, with another hash.

    A UUID's own hash is its number modulo a prime: a producer can make many with one hash.
    """

    __slots__ = ()

    def __hash__(self) -> int:
        """Return a hash that no producer can foresee."""
        return hash(self.bytes)

    def __repr__(self) -> str:
        """Return the text of a plain UUID: names in a ledger are made of it."""
        return f"UUID({str(self)!r})"


def text_of(identity: object) -> str:
    """Return an id as text; a binary one as hexadecimal digits."""
    return identity.hex() if isinstance(identity, bytes) else str(identity)


def time_of(milliseconds: int | None) -> datetime | None:
    """Return an AMQP timestamp as a datetime; None if there is none, or if it is out of the calendar's range."""
    if not milliseconds:
        return None
    try:
        return EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None

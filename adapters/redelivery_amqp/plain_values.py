"""Ids and times of AMQP as an application sees them, and as keys of the library's own tables."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

__all__ = ["SaltedUUID", "text_of", "time_of"]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class SaltedUUID(UUID):
    """An id as a key: a UUID's own hash is its number modulo a prime, so that many with one hash are easily made."""

    __slots__ = ()

    def __hash__(self) -> int:
        """Return what nobody can foresee."""
        return hash(self.bytes)

    def __repr__(self) -> str:
        """Return that of the UUID: names in a ledger are made of it."""
        return f"UUID({str(self)!r})"


def text_of(identity: object) -> str:
    """Return an id as text: a binary one in hexadecimal digits."""
    return identity.hex() if isinstance(identity, bytes) else str(identity)


def time_of(milliseconds: int | None) -> datetime | None:
    """Return a time of the protocol's, or None where there is none, or none that a calendar has."""
    if not milliseconds:
        return None
    try:
        return EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None

"""What the broker is to hold back since lately, should the connection be lost before it has read that."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable

    from redelivery.core.delivery import Delivery, Record
    from redelivery.core.message_history import MessageHistory

__all__ = ["Rescheduled"]


# Seconds after which a broker has read it, or misses its heart-beats.
PATIENCE = 60.0


class Rescheduled:
    """Records by the proof of their messages, each with the time until which its settlement may be lost."""

    def __init__(self) -> None:
        self._records: dict[Hashable, tuple[Hashable, Record, float]] = {}

    def add(self, delivery: Delivery, record: Record, now: float) -> None:
        """Remember one, as it was held back the last time."""
        while self._records and now >= self._records[next(iter(self._records))][2]:
            del self._records[next(iter(self._records))]
        proof = delivery.proof
        if proof is None:
            return
        if record.digest is None:
            record.digest, record.strong = delivery.digest(), delivery.strong
        self._records.pop(proof, None)
        self._records[proof] = delivery.key, record, now + PATIENCE

    def arrived(self, delivery: Delivery) -> Record | None:
        """Learn that one has come: the broker has held it, or has not read that. Return what is known of it."""
        if not self._records or (proof := delivery.proof) is None:
            return None
        known = self._records.pop(proof, None)
        return None if known is None else known[1]

    def lost(self, history: MessageHistory, now: float) -> None:
        """Hand over what the broker may not have read: the connection is lost."""
        for key, record, until in self._records.values():
            if now < until:
                history.recall(key, record)
        self._records.clear()

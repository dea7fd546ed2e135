"""What the broker is to hold back since lately, should the connection be lost before it has read that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Hashable
    from contextlib import AbstractContextManager

    from redelivery.core.delivery import Delivery, Record

__all__ = ["Rescheduled"]


# Seconds after which a broker has read it, or misses its heart-beats.
PATIENCE = 60.0


class Rescheduled:
    """Records by the proof of their messages, each with the time until which its settlement may be lost.

    One of all consumers of a source: any of them may get the message next. `lock`: that of their history.
    """

    def __init__(self, lock: AbstractContextManager[Any]) -> None:
        self._lock = lock
        # The oldest first; and those that equal messages have together.
        self._known: dict[Record, tuple[Hashable, Hashable, int, float]] = {}
        self._equal: dict[Hashable, dict[Record, None]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def add(self, delivery: Delivery, record: Record, due: int, now: float) -> None:
        """Remember one, as it was held back the last time; `due`: as that is noted on it."""
        proof = delivery.proof
        if proof is not None and record.digest is None:
            record.digest, record.strong = delivery.digest(), delivery.strong
        with self._lock:
            while self._known and now >= self._known[oldest := next(iter(self._known))][3]:
                self._drop(oldest)
            if proof is not None:
                self._drop(record)
                self._known[record] = proof, delivery.key, due, now + PATIENCE
                self._equal.setdefault(proof, {})[record] = None

    def arrived(self, delivery: Delivery, due: int | None) -> Record | None:
        """Learn that a message has come, on which a due time is noted, or none.

        It was held back until then; a later one than is known here was noted by another consumer, which has had it
        since. With an earlier one, or none, the broker has had it back before it has read that it was to wait: its
        record is returned. What it sends for the first time is another message, which may be equal in every byte.
        """
        if not self._known or (proof := delivery.proof) is None:
            return None
        with self._lock:
            equal = self._equal.get(proof, {})
            held = next((each for each in equal if due is not None and self._known[each][2] <= due), None)
            if held is not None:
                self._drop(held)
                return None
            found = next(iter(equal), None) if delivery.redelivered else None
            if found is not None:
                self._drop(found)
            return found

    def recalled(self, record: Record) -> Hashable | None:
        """Remember a record no more, as the broker has not read that; return the key of its message, or None."""
        with self._lock:
            return self._drop(record)

    def absorb(self, other: Rescheduled) -> None:
        """Take over what consumers that have closed have left."""
        with other._lock:
            left = list(other._known.items())
        with self._lock:
            for record, (proof, key, due, until) in left:
                self._known[record] = proof, key, due, until
                self._equal.setdefault(proof, {})[record] = None

    def lost(self, now: float) -> list[tuple[Hashable, Record]]:
        """Return what the broker may not have read, as the connection is lost: it is remembered here no more."""
        with self._lock:
            found = [(key, record) for record, (_, key, _, until) in self._known.items() if now < until]
            self._known.clear()
            self._equal.clear()
        return found

    def _drop(self, record: Record) -> Hashable | None:
        proof, key, _, _ = self._known.pop(record, (None, None, 0, 0.0))
        equal = self._equal.get(proof, {})
        equal.pop(record, None)
        if not equal:
            self._equal.pop(proof, None)
        return key

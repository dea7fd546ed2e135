"""Messages that the broker was asked to delay lately: if the connection is lost, it may not have read that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Hashable
    from contextlib import AbstractContextManager

    from redelivery.core.delivery import Delivery, Record

__all__ = ["Rescheduled"]


# Seconds after which a broker has read it; otherwise it misses its heart-beats.
PATIENCE = 60.0


class Rescheduled:
    """Records by the proof of their messages, each with the time until which its settlement may be lost.

    Shared by all consumers of a source: any of them may get the message next. `lock`: the one of their history.
    """

    def __init__(self, lock: AbstractContextManager[Any]) -> None:
        self._lock = lock
        # Oldest first; and by proof, because equal messages share one.
        self._known: dict[Record, tuple[Hashable, Hashable, int, float]] = {}
        self._equal: dict[Hashable, dict[Record, None]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def add(self, delivery: Delivery, record: Record, due: int, now: float) -> None:
        """Remember a message that the broker is to delay; `due`: the due time noted on it."""
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
        """Note the arrival of a message with a noted due time, or without one.

        The broker delayed it until that time; a later one than known here was noted by another consumer in between.
        With an earlier one, or none, the broker had it back before it read that it was to wait: the record is
        returned. A message that the broker sends for the first time is another one, even if equal in every byte.
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
        """Remove a record, because the broker has not read its settlement; return its message's key, or None."""
        with self._lock:
            return self._drop(record)

    def absorb(self, other: Rescheduled) -> None:
        """Take over the records of consumers that have closed."""
        with other._lock:
            left = list(other._known.items())
        with self._lock:
            for record, (proof, key, due, until) in left:
                self._known[record] = proof, key, due, until
                self._equal.setdefault(proof, {})[record] = None

    def lost(self, now: float) -> list[tuple[Hashable, Record]]:
        """Remove and return the records that the broker may not have read: the connection is lost."""
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

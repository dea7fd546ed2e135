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
        self._known: dict[Record, tuple[Hashable, Hashable, float]] = {}
        self._equal: dict[Hashable, dict[Record, None]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def add(self, delivery: Delivery, record: Record, now: float) -> None:
        """Remember one, as it was held back the last time."""
        proof = delivery.proof
        if proof is not None and record.digest is None:
            record.digest, record.strong = delivery.digest(), delivery.strong
        with self._lock:
            while self._known and now >= self._known[oldest := next(iter(self._known))][2]:
                self._drop(oldest)
            if proof is not None:
                self._drop(record)
                self._known[record] = proof, delivery.key, now + PATIENCE
                self._equal.setdefault(proof, {})[record] = None

    def arrived(self, delivery: Delivery) -> None:
        """Learn that a message has come: if the broker has had it before, it has held it, or has not read that."""
        if self._known and delivery.redelivered and (proof := delivery.proof) is not None:
            with self._lock:
                if equal := self._equal.get(proof):
                    self._drop(next(iter(equal)))

    def recalled(self, record: Record) -> Hashable | None:
        """Remember a record no more, as the broker has not read that; return the key of its message, or None."""
        with self._lock:
            return self._drop(record)

    def absorb(self, other: Rescheduled) -> None:
        """Take over what consumers that have closed have left."""
        with other._lock:
            left = list(other._known.items())
        with self._lock:
            for record, (proof, key, until) in left:
                self._known[record] = proof, key, until
                self._equal.setdefault(proof, {})[record] = None

    def lost(self, now: float) -> list[tuple[Hashable, Record]]:
        """Return what the broker may not have read, as the connection is lost: it is remembered here no more."""
        with self._lock:
            found = [(key, record) for record, (_, key, until) in self._known.items() if now < until]
            self._known.clear()
            self._equal.clear()
        return found

    def _drop(self, record: Record) -> Hashable | None:
        proof, key, _ = self._known.pop(record, (None, None, 0.0))
        equal = self._equal.get(proof, {})
        equal.pop(record, None)
        if not equal:
            self._equal.pop(proof, None)
        return key

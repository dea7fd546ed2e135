"""Memory that all consumers of a source share, in their history: successes, released messages without an id.

A program may have a consumer for each request: what a consumer alone remembers ends with each.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from redelivery.core.known_records import KnownRecords

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractContextManager

    from redelivery.core.delivery import Delivery, Record
    from redelivery.core.report import Counters

__all__ = ["SourceMemory"]

# Number of records that are kept, as of those with ids beside the windows of consumers (`message_history.RECALL`).
MOST = 8192
# Seconds after its last failure in which a message without an id is known. Later, equal bytes are another message's.
KNOWN = 3600.0


class SourceMemory:
    """Successes of all consumers of a source, and records of the messages without an id that they have released."""

    def __init__(self, lock: AbstractContextManager[Any] | None = None) -> None:
        self._lock = lock or nullcontext()
        self._open: list[Counters] = []
        # Successes of the consumers that have closed, and late ones.
        self._closed = 0
        self._nameless = KnownRecords()
        self._most: float = MOST

    def __len__(self) -> int:
        return len(self._nameless)

    def stop(self) -> None:
        """Remember no message from now on."""
        self._most = 0

    def join(self, counts: Counters) -> None:
        """Add a consumer: its successes count from now on."""
        with self._lock:
            self._open.append(counts)

    def closed(self, counts: Counters, unsettled: Iterable[Delivery]) -> None:
        """Remove a consumer that has closed: its successes still count, and what it had unsettled is released."""
        for delivery in unsettled:
            self.released(delivery, delivery.record)
        with self._lock:
            if counts in self._open:
                self._open.remove(counts)
                self._closed += counts.accepted

    def succeeded_late(self) -> None:
        """Count a success whose connection is gone: no consumer counts it as accepted."""
        with self._lock:
            self._closed += 1

    @property
    def successes(self) -> int:
        """Number of messages that have succeeded. Computed at a failure, so that a success costs nothing."""
        with self._lock:
            return self._closed + sum(each.accepted for each in self._open)

    @property
    def empty(self) -> bool:
        """True if no arriving message can be known. Read without the lock."""
        return not self._nameless

    def released(self, delivery: Delivery, record: Record | None) -> None:
        """Keep the record of a message without an id: its bytes and the redelivered flag will show it.

        Not its verdict, or that a copy of it is at the broker: equal bytes are no proof of that.
        """
        settles = record is not None and (record.poisoned or record.returns is not None)
        if record is None or settles or delivery.key is not None or not self._most:
            return
        # Before the lock, because it may take long.
        record.digest = record.digest or delivery.digest()
        with self._lock:
            self._nameless.add(None, record, self._most)

    def known(self, delivery: Delivery, now: float) -> Record | None:
        """Remove and return the record of a released message that is redelivered at `now`; None: it is not known.

        A record may pass between messages with equal bytes, as in the history.
        """
        if self.empty or delivery.key is not None or not delivery.redelivered:
            return None
        digest = delivery.digest()
        with self._lock:
            while (record := self._nameless.free(None, digest, strong=False)) is not None:
                self._nameless.drop(None, record)
                if _last(record, now) >= now - KNOWN:
                    return record
        return None

    def absorb(self, other: SourceMemory, records: Iterable[Record]) -> None:
        """Take over the memory of a consumer that has closed; `records`: of its messages with ids."""
        successes, theirs = self.successes, other.successes
        with other._lock:
            nameless = [record for _, record in other._nameless]
        for record in (*records, *nameless):
            if record.failed_first is not None and record.failed_first[0] is other:
                # As many successes ago as before.
                record.failed_first = self, successes - (theirs - record.failed_first[1])
        with self._lock:
            for record in nameless:
                self._nameless.add(None, record, self._most)


def _last(record: Record, now: float) -> float:
    """Return when the message failed last, or is due; `now` if neither is known."""
    failed = None if record.failed_at is None else record.failed_at[1]
    return max((at for at in (record.last_failure, record.due, failed) if at is not None), default=now)

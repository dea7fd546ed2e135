"""The records of messages that no consumer has, by key: bounded, confirmed verdicts are forgotten first."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from redelivery.core.delivery import Record

__all__ = ["KnownRecords"]


class KnownRecords:
    """A multiset: messages that nobody can tell apart have a record each. Not for threads."""

    def __init__(self) -> None:
        self._records: OrderedDict[Hashable, list[Record]] = OrderedDict()
        self._many = 0
        # Of dead letters that are safe.
        self._safe: OrderedDict[Record, Hashable] = OrderedDict()

    def __len__(self) -> int:
        return self._many

    def __contains__(self, key: Hashable) -> bool:
        return key in self._records

    def __iter__(self) -> Iterator[tuple[Hashable, Record]]:
        """Go through all, the oldest first; they may be dropped on the way."""
        return iter([(key, record) for key, records in self._records.items() for record in records])

    def of(self, key: Hashable, digest: bytes) -> Sequence[Record]:
        """Return the records of messages with this key, and this digest where the key is not enough."""
        return [record for record in self._records.get(key, ()) if record.strong or record.digest == digest]

    def weaken(self) -> None:
        """Compare digests from now on: the keys are of another broker than the next ones."""
        for _, record in self:
            record.strong = False

    def add(self, key: Hashable, record: Record, limit: float) -> None:
        """Keep a record, once; past the limit others are forgotten."""
        records = self._records.setdefault(key, [])
        self._records.move_to_end(key)
        if all(each is not record for each in records):
            records.append(record)
            self._many += 1
            if record.confirmed:
                self._safe[record] = key
        while self._many > max(0, limit):
            if self._safe:
                oldest, of = next(iter(self._safe.items()))
            else:
                of = next(iter(self._records))
                oldest = self._records[of][0]
            self.drop(of, oldest)

    def drop(self, key: Hashable, record: Record) -> None:
        """Keep a record no longer."""
        records = self._records.get(key, [])
        left = [each for each in records if each is not record]
        self._many -= len(records) - len(left)
        self._safe.pop(record, None)
        if left:
            self._records[key] = left
        else:
            self._records.pop(key, None)

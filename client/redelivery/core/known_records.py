"""Records of messages that no consumer has, by key. Bounded: confirmed verdicts are removed first."""

from __future__ import annotations

from collections import OrderedDict
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

    from redelivery.core.delivery import Record

__all__ = ["KnownRecords"]

# In order of arrival. Removing one, or moving one to the front, costs the same however many there are.
Records = OrderedDict["Record", None]
NO_RECORDS: Records = OrderedDict()


class KnownRecords:
    """Multiset of records: messages that nothing distinguishes have one each. Not thread-safe.

    A producer may give one id to all its messages: that makes nothing slower here.
    """

    def __init__(self) -> None:
        # By key, then by digest.
        self._records: OrderedDict[Hashable, dict[bytes | None, Records]] = OrderedDict()
        self._many = 0
        # Epoch of the present connection, or of the last one.
        self.epoch = -1
        # Records whose dead letter is confirmed: their key, and the epoch since which they are known.
        self._safe: OrderedDict[Record, tuple[Hashable, int]] = OrderedDict()

    def __len__(self) -> int:
        return self._many

    def __contains__(self, key: Hashable) -> bool:
        return key in self._records

    def __iter__(self) -> Iterator[tuple[Hashable, Record]]:
        """Iterate over all, oldest first; they may be dropped meanwhile."""
        return iter(
            [(key, each) for key, digests in self._records.items() for each in chain(*digests.values())]
        )

    def of(self, key: Hashable, digest: bytes, *, strong: bool) -> Iterable[Record]:
        """Return the records of a message: by key alone only if the broker made the ids of message and record."""
        digests = self._records.get(key, {})
        if not strong:
            return digests.get(digest, ())
        return (each for each in chain(*digests.values()) if each.strong or each.digest == digest)

    def free(self, key: Hashable, digest: bytes, *, strong: bool) -> Record | None:
        """Return the first record of a message that no second delivery waits on; or None."""
        found = self.of(key, digest, strong=strong)
        return next((record for record in found if record.copy is None), None)

    def forget_safe(self, epoch: int) -> None:
        """Remove records of confirmed dead letters that were known before this connection."""
        for record, (key, since) in list(self._safe.items()):
            if since < epoch:
                self.drop(key, record)

    def weaken(self) -> None:
        """Compare digests from now on: the next keys are made by another broker."""
        for _, record in self:
            record.strong = False

    def add(self, key: Hashable, record: Record, limit: float, *, first: bool = False) -> None:
        """Keep a record, once; above the limit others are removed.

        `first`: it is found before the others of equal messages.
        """
        digests = self._records.setdefault(key, {})
        if (records := digests.get(record.digest)) is None:
            records = digests[record.digest] = OrderedDict()
        self._records.move_to_end(key)
        if record not in records:
            records[record] = None
            if first:
                records.move_to_end(record, last=False)
            self._many += 1
            if record.confirmed:
                self._safe[record] = key, self.epoch
        while self._many > max(0, limit):
            if self._safe:
                oldest, (of, _) = next(iter(self._safe.items()))
            else:
                of = next(iter(self._records))
                oldest = next(chain(*self._records[of].values()))
            self.drop(of, oldest)

    def drop(self, key: Hashable, record: Record) -> None:
        """Remove a record."""
        self._safe.pop(record, None)
        digests = self._records.get(key, {})
        records = digests.get(record.digest, NO_RECORDS)
        if record not in records:
            return
        del records[record]
        self._many -= 1
        if not records:
            del digests[record.digest]
        if not digests:
            del self._records[key]

"""Duplicates in a drain: the broker redelivers messages whose acceptances were lost with a connection or an attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.core.message_history import RETURN

if TYPE_CHECKING:
    from collections.abc import Hashable

    from redelivery.clock import Clock
    from redelivery.core.delivery import Delivery
    from redelivery_spark.batch.drained_queue import DrainedQueue
    from redelivery_spark.batch.drained_segment import DrainedSegment

__all__ = ["DrainDuplicates"]

# Segments that are kept open: duplicates arrive roughly in the order in which the messages were taken.
OPEN = 4
# Rows that are restored at once.
ROWS = 1000
# Bits of a row's number in its segment.
_SHIFT = 20


class DrainDuplicates:
    """Rows that a drain had when a connection began. Over this connection the broker can redeliver each once.

    It can do so after all other messages: Classic puts the messages of a dead connection behind those that it has paged
    in. A row can be of any age: messages that the broker redelivered to one attempt can go back with it, and arrive at
    a third one.

    A row is identified by its key, and by the digest of all that the producer sent. The rows are read when the first
    message arrives that can be a duplicate, and those of each segment once. A drain can have a million rows. Of each
    only two integers are kept, about 110 bytes, no id and no body: a hit is restored and compared.
    """

    def __init__(self, log: DrainedQueue, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._epoch = 0
        self._since = 0.0
        # Segments whose messages can be redelivered over this connection.
        self._segments = 0
        self._known = 0  # segments that are in `_rows`
        # Rows, by the hash of key and digest.
        self._rows: dict[int, int | list[int]] = {}
        # Rows of which a duplicate arrived over this connection.
        self._found: set[int] = set()
        # Open segments by number, the most recently used last.
        self._open: dict[int, DrainedSegment] = {}

    @property
    def expected(self) -> bool:
        """True if a message can arrive that is in the drain."""
        return self._segments > 0

    def begin(self, epoch: int, segments: int) -> None:
        """Expect messages of the first `segments` segments over the connection of this epoch."""
        self._epoch = epoch
        self._since = self._clock.monotonic()
        self._segments = segments
        self._found.clear()

    def go_on(self, epoch: int, segments: int) -> None:
        """Call `begin` if the connection is another one."""
        if epoch != self._epoch:
            self.begin(epoch, segments)

    def has(self, delivery: Delivery, published: int, *, marks: bool) -> bool:
        """True if this message is in the first `published` segments. `marks`: as in `Capabilities`.

        A broker that marks no redelivery sends duplicates soon after the connection began, or never.
        """
        if not self._segments or delivery.key is None:
            return False
        if not delivery.redelivered and (marks or self._clock.monotonic() - self._since >= RETURN):
            return False
        self._learn(min(self._segments, published))
        proof = _proof(delivery)
        rows = self._rows.get(hash(proof), ())
        for row in (rows,) if isinstance(rows, int) else rows:
            if row in self._found:
                continue
            (there,) = self._segment(row >> _SHIFT).deliveries(row & ((1 << _SHIFT) - 1), 1)
            if _proof(there) == proof:
                self._found.add(row)
                return True
        return False

    def _learn(self, segments: int) -> None:
        """Read the segments that are new here."""
        for number in range(self._known, segments):
            segment = self._log.read(number)
            for first in range(0, len(segment), ROWS):
                for at, there in enumerate(segment.deliveries(first, ROWS), first):
                    self._add(number << _SHIFT | at, hash(_proof(there)))
            self._known = number + 1

    def _add(self, row: int, hashed: int) -> None:
        rows = self._rows.setdefault(hashed, row)
        if isinstance(rows, list):
            rows.append(row)
        elif rows != row:
            self._rows[hashed] = [rows, row]

    def _segment(self, number: int) -> DrainedSegment:
        segment = self._open.pop(number, None)
        if segment is None:
            segment = self._log.read(number)
            if len(self._open) >= OPEN:
                del self._open[next(iter(self._open))]
        self._open[number] = segment
        return segment


def _proof(delivery: Delivery) -> tuple[Hashable, bytes]:
    return delivery.key, delivery.digest()

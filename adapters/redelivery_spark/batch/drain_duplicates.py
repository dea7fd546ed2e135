"""What the broker sends again although a drain has it: acceptances were lost with a connection, or an attempt."""

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

# Segments that are kept open: copies come about in the order in which they were taken.
OPEN = 4
# Rows that are restored at once.
ROWS = 1000
# Bits for a row's number in its segment.
_SHIFT = 20


class DrainDuplicates:
    """The rows that a drain had when a connection began. The broker can redeliver each message of them over it, once.

    It can do so after all other messages: Classic puts what a dead link held behind what it has paged in. A row can be
    of any age: what the broker redelivered to one attempt can go back with it, to a third one.

    A row is known by its key, and by the digest of all that the producer sent. The rows are read when the first message
    arrives that may be a duplicate, and those of each segment once. As a drain may have a million rows, two integers of
    each are kept, about 110 bytes, no id and no body: a hit is restored and compared.
    """

    def __init__(self, log: DrainedQueue, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._epoch = 0
        self._since = 0.0
        # Whose messages may come over this connection.
        self._segments = 0
        self._known = 0  # segments that are in `_rows`
        # By the hash of key and digest.
        self._rows: dict[int, int | list[int]] = {}
        # Rows of which a copy has come over this connection.
        self._found: set[int] = set()
        # The one that was used last is the last.
        self._open: dict[int, DrainedSegment] = {}

    @property
    def expected(self) -> bool:
        """Whether a message may come that is in the drain."""
        return self._segments > 0

    def begin(self, epoch: int, segments: int) -> None:
        """Learn that from now on, over this connection, messages of so many segments may come."""
        self._epoch = epoch
        self._since = self._clock.monotonic()
        self._segments = segments
        self._found.clear()

    def go_on(self, epoch: int, segments: int) -> None:
        """Begin if it is another connection."""
        if epoch != self._epoch:
            self.begin(epoch, segments)

    def has(self, delivery: Delivery, published: int, *, marks: bool) -> bool:
        """Whether this message is in the drain, of which so much is published. `marks`: as in `Capabilities`.

        A broker that marks none sends duplicates soon after the connection began, or never.
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

"""What the broker sends again although a drain has it: acceptances were lost with a connection, or an attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.core.message_history import RETURN
from redelivery_spark.stream.rows import key_of, keys_of

if TYPE_CHECKING:
    import pyarrow as pa

    from redelivery.clock import Clock
    from redelivery.core.delivery import Delivery
    from redelivery_spark.batch.drained_queue import DrainedQueue

__all__ = ["DrainDuplicates"]

# Segments that are kept open: copies come about in the order in which they were taken.
OPEN = 4
# Bits for a row's number in its segment.
_SHIFT = 20


class DrainDuplicates:
    """The rows that a drain had when a connection began. Each message of them may come again over it, once.

    They may come after everything else: Classic gives back what a dead link held behind what it has paged in. And of
    any age: what one attempt was sent for the second time may go back with it, and come to a third.

    It learns the rows when the first message comes that may be a copy, and those of each segment once. For a drain may
    have a million of them it keeps two integers of each, about 110 bytes, no id and no body: a hit is looked up.
    """

    def __init__(self, log: DrainedQueue, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._epoch = 0
        self._since = 0.0
        # Whose messages may come over this connection.
        self._segments = 0
        self._known = 0  # segments that are in `_rows`
        self._rows: dict[int, int | list[int]] = {}  # by the hash of their key
        # Rows of which a copy has come over this connection.
        self._found: set[int] = set()
        # The one that was used last is the last.
        self._open: dict[int, pa.Table] = {}

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

        A broker that marks none sends copies soon after the connection began, if at all.
        """
        if not self._segments or delivery.identity is None:
            return False
        if not delivery.redelivered and (marks or self._clock.monotonic() - self._since >= RETURN):
            return False
        self._learn(min(self._segments, published))
        key = key_of(delivery)
        rows = self._rows.get(hash(key), ())
        for row in (rows,) if isinstance(rows, int) else rows:
            if row in self._found:
                continue
            at = self._table(row >> _SHIFT).slice(row & ((1 << _SHIFT) - 1), 1)
            # Ids need not differ, and then bodies tell.
            if keys_of(at)[0] == key and at.column("body")[0].as_py() == delivery.body:
                self._found.add(row)
                return True
        return False

    def _learn(self, segments: int) -> None:
        """Read the keys of the segments that are new here."""
        for number in range(self._known, segments):
            for at, key in enumerate(keys_of(self._log.read(number))):
                row, hashed = number << _SHIFT | at, hash(key)
                rows = self._rows.setdefault(hashed, row)
                if isinstance(rows, list):
                    rows.append(row)
                elif rows != row:
                    self._rows[hashed] = [rows, row]
            self._known = number + 1

    def _table(self, number: int) -> pa.Table:
        table = self._open.pop(number, None)
        if table is None:
            table = self._log.read(number)
            if len(self._open) >= OPEN:
                del self._open[next(iter(self._open))]
        self._open[number] = table
        return table

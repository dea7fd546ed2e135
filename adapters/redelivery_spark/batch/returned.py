"""What the broker sends again although a drain has it: acceptances were lost with a connection, or an attempt."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from redelivery_spark.rows import key_of, keys_of

if TYPE_CHECKING:
    from collections.abc import Hashable

    import pyarrow as pa

    from redelivery.core.delivery import Delivery
    from redelivery_spark.batch.drained import DrainedQueue

__all__ = ["Returned"]


class Returned:
    """The last rows of a drain when a connection began. Each message of them may come again over it, once.

    They may come after everything else: Classic gives back what a dead link held behind what it has paged in.
    `unread`: of how many messages the broker may not have read the acceptance.
    """

    def __init__(self, log: DrainedQueue, unread: int) -> None:
        self._log = log
        self._unread = unread
        self._epoch: int | None = None
        self._tables: dict[int, pa.Table] = {}  # by segment; those of earlier connections may still come, too
        self._rows: defaultdict[Hashable, list[tuple[pa.Table, int]]] = defaultdict(list)

    def look(self, segments: int) -> None:
        """Learn that there are so many segments, and that messages of the last ones may come from now on."""
        rows = 0
        for number in reversed(range(segments)):
            table = self._tables.get(number)
            if table is None:
                table = self._tables[number] = self._log.read(number)
            rows += table.num_rows
            if rows >= self._unread:
                break
        self._rows.clear()
        for table in self._tables.values():
            for at, key in enumerate(keys_of(table)):
                self._rows[key].append((table, at))

    def has(self, delivery: Delivery, segments: int, *, marks: bool) -> bool:
        """Whether this message is in one of so many segments. `marks`: as in `Capabilities`."""
        if delivery.epoch != self._epoch:
            self._epoch = delivery.epoch
            self.look(segments)
        if delivery.identity is None or (marks and not delivery.redelivered):
            return False
        rows = self._rows.get(key_of(delivery), [])
        for row in rows:
            table, at = row
            if table.column("body")[at].as_py() == delivery.body:  # ids need not differ, and then bodies tell
                rows.remove(row)
                return True
        return False

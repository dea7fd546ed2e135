"""What the broker may send again: of the last batches that whose acknowledgement it may not have read."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from redelivery_spark.stream.rows import digest_of, key_of, keys_of
from redelivery_spark.wal.arrow_files import number_of, read_table
from redelivery_spark.wal.segments import FOLDER, KEPT, segment_of
from redelivery_spark.wal.store import store_at
from redelivery_spark.wal.task_parts import TaskParts
from redelivery_spark.wal.wal_state import buried_in

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable

    from redelivery.core.delivery import Delivery
    from redelivery_spark.wal.wal_state import Place
    from redelivery_spark.wal.wal_store import WalStore

__all__ = ["ExecutorDuplicates"]


class ExecutorDuplicates:
    """The messages of the batches up to one that may come again, whoever has taken them; each of them once.

    They are those of parts whose task has not ended well, and of segments that were written over an earlier connection
    of the driver (`doubtful`: their batches). What has been read of the others is never taken for theirs: producers
    may use ids again. A dead letter is none of them: one that is put back may have the same identity, and is handled
    again. Read when it is first asked.

    Tasks and the driver look for copies at one time, and there is one of each row: who finds it leaves a mark.
    """

    def __init__(self, store: WalStore, log: str, number: int, doubtful: Collection[int]) -> None:
        self._parts = TaskParts(store)
        self._log = log
        self._number = number
        self._doubtful = doubtful
        self._known: dict[Hashable, list[tuple[str, int]]] | None = None  # files, and rows of them

    def claims(self, delivery: Delivery) -> bool:
        """Whether the log has this message, and no other was its copy: then it is to be accepted.

        The same are destination, id, time stamp and body. To be asked once about each.
        """
        if self._known is None:
            self._known = self._found()
        if not self._known:
            return False
        rows = self._known.get((key_of(delivery), digest_of(delivery.body)), [])
        while rows:
            if self._parts.claim(*rows.pop()):
                return True
        return False

    def _found(self) -> dict[Hashable, list[tuple[str, int]]]:
        known: dict[Hashable, list[tuple[str, int]]] = {}
        parts = self._parts
        wanted = {segment_of(number) for number in self._doubtful} | parts.unaccepted(self._number - KEPT)
        # What was published when its batch was gone already has been given back.
        there = {number_of(name) for name in parts.store.names(FOLDER)} if wanted else set[int]()
        buried = buried_in(parts.store) if wanted else set["Place"]()
        for number in sorted({number_of(name) for name in wanted} & there):
            begin = 0
            for name in (segment_of(number), *parts.of(number)):
                rows = _rows(parts.store.url, self._log, name)
                for at, row in enumerate(rows if name in wanted else ()):
                    if row is not None and (number, begin + at) not in buried:
                        known.setdefault(row, []).append((name, at))
                begin += len(rows)
        return known


@lru_cache(maxsize=64)
def _rows(place: str, log: str, name: str) -> tuple[Hashable, ...]:
    """What the rows of a file are known by; None: the broker has let go of its message long since.

    A file of a log is published once, and never changes; `log` tells it from that of a log that was removed.
    """
    del log
    table = read_table(store_at(place), name)
    known = zip(keys_of(table), map(digest_of, table.column("body").to_pylist()), strict=True)
    before, kept = table.column("_number").to_pylist(), table.column("_kept").to_pylist()
    return tuple(
        row if number is None or stays else None
        for row, number, stays in zip(known, before, kept, strict=True)
    )

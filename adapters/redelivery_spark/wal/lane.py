"""One lane of the write-ahead log: numbered segments, appended by one reader, and read in that order.

Appending needs no lock to be right: a number can be published once. If the newest start finds a number in use, it
counts that segment as part of the lane, because its messages may have been accepted, and takes the next number. In lane
0 only the newest start appends. It begins with a segment without rows; a start that later finds a number in use is an
older one.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from redelivery_spark.wal.checked_file import FileMissing, publish_checked
from redelivery_spark.wal.segment_files import (
    facts_of,
    folder_of,
    number_of,
    read_table,
    segment_name,
    written,
)
from redelivery_spark.wal.store import taken

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from redelivery_spark.wal.wal_store import WalStore

__all__ = ["LANES", "REDELIVERIES", "Lane", "NumberTaken", "Segment", "Vector"]

LANES = 32
"""Lane 0 and those of at most 31 readers: the limit of a place's bits."""
REDELIVERIES = 0
"""Lane of rows that are redelivered."""

Vector = dict[int, int]
"""Number of each lane's last segment, by the lane's number; a missing lane has no segment."""


class NumberTaken(Exception):
    """Another process has published a segment under the next number: an older start, or a newer one."""


class Segment(NamedTuple):
    """Facts of a segment that need no reading of its rows. `size`: bytes in memory; `at`: see `SegmentFacts`."""

    number: int
    rows: int
    size: int
    connection: str = ""
    alone: bool = False
    at: float = 0.0


class Lane:
    """Existing segments of one lane. One thread publishes, another one removes settled segments."""

    def __init__(self, store: WalStore, number: int) -> None:
        self.number = number
        self.folder = folder_of(number)
        self.last = 0
        """Highest known number that was ever used."""
        self.settled = 0
        """Number of the last segment whose rows are known to be settled."""
        self.removes = True
        """True if settled segments are removed here; False: by the process of the lane's reader."""
        self._store = store
        self._lock = threading.Lock()
        self._found: list[Segment] = []
        self._ahead = 0
        # Settled segments that stay: those from this number on, and these. Default: all, except those of lane 0.
        self._kept: tuple[float, frozenset[int]] = (0 if number != REDELIVERIES else inf, frozenset())

    def load(self) -> None:
        """Read the existing segments."""
        for name in self._store.names(self.folder):
            if number_of(name) > self.last:
                self._take_in(number_of(name))

    def go_on_from(self, number: int) -> None:
        """Note that numbers up to this one have been used: their segments can be gone, or be listed late."""
        if number > self.last:
            self.look()
        self.last = max(self.last, number)

    def publish(self, table: pa.Table, *, first: bool = False) -> Segment:
        """Append a segment, durably.

        Args:
            table: Its rows.
            first: In lane 0: True for the first segment of a start, before which others may have appended.

        Raises:
            LogTaken: In lane 0, another start has appended since this one began: the log would have its rows twice.
            NumberTaken: In other lanes: the existing segment can have these rows, or be a newer start's.
            OSError: A folder cannot be written; an object store's library raises its own errors.
        """
        content = written(table)
        while not publish_checked(self._store, segment_name(self.number, self.last + 1), *content):
            if not first:
                raise taken(self._store) if self.number == REDELIVERIES else NumberTaken
            self.take_in()
        return self._add(_segment(self.last + 1, table))

    def take_in(self) -> None:
        """Add the segment that another process published under the next number. Raises FileMissing: it is gone."""
        self._take_in(self.last + 1)

    def look(self) -> bool:
        """Add segments that another process has published since; return True if there were any."""
        before = self.last
        with suppress(FileMissing):
            while True:
                self.take_in()
        return self.last > before

    def _take_in(self, number: int) -> None:
        self._add(_segment(number, self.read(number)))

    def _add(self, segment: Segment) -> Segment:
        with self._lock:
            # Another thread may have found it, too.
            if segment.number > self.last:
                self._found.append(segment)
                self.last = segment.number
                if segment.number > self.settled:
                    self._ahead += segment.size
        return segment

    def added(self, segment: Segment) -> None:
        """Add a segment that another process of this query has published."""
        self._add(segment)

    @property
    def ahead(self) -> int:
        """Bytes of segments that are not settled."""
        return self._ahead

    def after(self, number: int, upto: int | None = None) -> list[Segment]:
        """Return the segments after a number, up to another one."""
        with self._lock:
            return [
                each for each in self._found if number < each.number and (upto is None or each.number <= upto)
            ]

    def newest_first(self) -> Iterator[Segment]:
        """Iterate over the existing segments, newest first."""
        with self._lock:
            return reversed(list(self._found))

    def read(self, number: int) -> pa.Table:
        """Return the rows of a segment. Raises FileMissing, and LogDamaged."""
        return read_table(self._store, segment_name(self.number, number))

    def keep(self, least: float, others: Iterable[int] = ()) -> None:
        """Keep settled segments from a number on, and some before it."""
        self._kept = (least, frozenset(others))

    def settle(self, number: int) -> None:
        """Settle all segments up to a number, and remove those that are no longer needed. The newest always stays.

        From the newest a later start knows which numbers have been used. If the process of a reader removes segments,
        it knows which ones are in doubt, and none is remembered here: there is one a second, as long as the query runs.
        """
        least, others = self._kept if self.removes else (inf, frozenset[int]())
        with self._lock:
            self.settled = max(self.settled, number)
            newest = self._found[-1].number if self._found else 0
            gone = [
                each.number
                for each in self._found
                if each.number <= self.settled and each.number < least and each.number not in others
            ]
            if gone and gone[-1] == newest:
                gone.pop()
            if gone:
                there = set(gone)
                self._found = [each for each in self._found if each.number not in there]
            self._ahead = sum(each.size for each in self._found if each.number > self.settled)
        if self.removes:
            self._store.remove(segment_name(self.number, number) for number in gone)


def _segment(number: int, table: pa.Table) -> Segment:
    facts = facts_of(table.schema)
    return Segment(number, table.num_rows, table.nbytes, facts.connection, facts.alone, facts.at)

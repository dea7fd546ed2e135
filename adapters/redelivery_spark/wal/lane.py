"""One lane of the log: numbered segments, appended by one reader, and read in that order.

Appending needs no lock to be right: a number can be published once. The newest start, when it finds it taken,
counts the segment that is there as part of the lane, because its messages may have been acknowledged, and goes on with
the next number. In lane 0 only the newest start appends: it begins with a segment without rows, and a start
that finds a number taken later is an older one.
"""

from __future__ import annotations

import threading
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from redelivery.errors import RedeliveryError
from redelivery_spark.wal.arrow_files import number_of, read_table, written
from redelivery_spark.wal.segment_schema import facts_of, folder_of, segment_name
from redelivery_spark.wal.store import taken

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from redelivery_spark.wal.wal_store import WalStore

__all__ = ["LANES", "REDELIVERIES", "Lane", "NumberTaken", "Segment", "Vector"]

LANES = 32
"""Lane 0 and those of at most 31 readers: what a place has room for."""
REDELIVERIES = 0
"""The lane of rows that are delivered again."""

Vector = dict[int, int]
"""The last segment of each lane, by the lane's number; of one that is missing there is none."""


class NumberTaken(Exception):
    """Another process has published a segment under the next number: an older start, or a newer one."""


class Segment(NamedTuple):
    """What is known of a segment without reading its rows. `size`: bytes in memory; `at`: see `SegmentFacts`."""

    number: int
    rows: int
    size: int
    connection: str = ""
    alone: bool = False
    at: float = 0.0


class Lane:
    """The segments of one lane that are there. One thread publishes, another one drops what is settled."""

    def __init__(self, store: WalStore, number: int) -> None:
        self.number = number
        self.folder = folder_of(number)
        self.last = 0
        """The highest number that was ever used, as far as is known."""
        self.settled = 0
        """The last segment whose rows are done with, as far as is known."""
        self.removes = True
        """Whether settled segments are removed here, and not by the process of its reader."""
        self._store = store
        self._lock = threading.Lock()
        self._found: list[Segment] = []
        self._ahead = 0
        # Of settled segments, what stays: from this number on, and these. Until somebody says so, all but lane 0's.
        self._kept: tuple[float, frozenset[int]] = (0 if number != REDELIVERIES else inf, frozenset())

    def load(self) -> None:
        """Take in the segments that are there."""
        for name in self._store.names(self.folder):
            if number_of(name) > self.last:
                self._take_in(number_of(name))

    def go_on_from(self, number: int) -> None:
        """Learn that numbers up to this one have been used: their segments may be gone, or listed late."""
        if number > self.last:
            self.look()
        self.last = max(self.last, number)

    def publish(self, table: pa.Table, *, first: bool = False) -> Segment:
        """Append a segment, durably.

        Args:
            table: its rows.
            first: in lane 0, whether it is the first one of a start, before which others may have appended.

        Raises:
            LogTaken: in lane 0, another start has appended since this one began: its rows would be there twice.
            NumberTaken: in other lanes: what is there may have these very rows, or be of a newer start.
            OSError: or what an object store's library raises.
        """
        content = written(table)
        while not self._store.publish(segment_name(self.number, self.last + 1), content):
            if not first:
                raise taken(self._store) if self.number == REDELIVERIES else NumberTaken
            self.take_in()
        return self._add(_segment(self.last + 1, table))

    def take_in(self) -> None:
        """Count what another process has published under the next number. Raises RedeliveryError if it is gone."""
        self._take_in(self.last + 1)

    def look(self) -> bool:
        """Take in what another process has published since; return whether there was anything."""
        found = False
        while self._is_there(self.last + 1):
            self.take_in()
            found = True
        return found

    def _is_there(self, number: int) -> bool:
        try:
            self.read(number)
        except RedeliveryError:
            return False
        return True

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
        """Learn of a segment that another process of this query has published."""
        self._add(segment)

    @property
    def ahead(self) -> int:
        """Bytes of what is not settled."""
        return self._ahead

    def after(self, number: int, upto: int | None = None) -> list[Segment]:
        """Return the segments behind a number, up to another one."""
        with self._lock:
            return [
                each for each in self._found if number < each.number and (upto is None or each.number <= upto)
            ]

    def newest_first(self) -> Iterator[Segment]:
        """Go through the segments that are there, backwards."""
        with self._lock:
            return reversed(list(self._found))

    def read(self, number: int) -> pa.Table:
        """Return the rows of a segment. Raises RedeliveryError if it is gone."""
        return read_table(self._store, segment_name(self.number, number))

    def keep(self, least: float, others: Iterable[int] = ()) -> None:
        """Have settled segments stay from a number on, and some before it."""
        self._kept = (least, frozenset(others))

    def settle(self, number: int) -> None:
        """Learn that all up to a number is done with, and remove what nobody needs; the newest always stays.

        By the newest a later start knows which numbers have been used. Where the process of a reader removes segments,
        it knows which ones are in doubt, and here none is remembered: there is one a second, for as long as a query is.
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

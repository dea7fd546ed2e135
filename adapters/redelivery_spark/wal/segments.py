"""The content of batches: one Arrow file each, published once."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from redelivery.errors import ConfigurationError, RedeliveryError
from redelivery_spark.wal.arrow_files import number_of, read_table, written
from redelivery_spark.wal.task_parts import TaskParts

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery_spark.wal.wal_store import WalStore

__all__ = ["FOLDER", "KEPT", "NO_SHARES", "Segments", "Shares", "segment_of", "sliced"]

FOLDER = "segments"
SLICES, SHARES, SHARE, SIZE = b"slices", b"shares", b"share", b"size"
KEPT = 3
"""Settled segments that stay: a broker that did not read the last acknowledgements sends those messages again."""


class Shares(NamedTuple):
    """How many tasks consume for a batch, and how many messages, of how many bytes together, each takes at most."""

    tasks: int
    messages: int
    size: int


NO_SHARES = Shares(0, 0, 0)


class Segments:
    """The batches of one log, by number. `check` raises LogTaken if the log is somebody else's by now."""

    def __init__(self, store: WalStore, check: Callable[[], None]) -> None:
        self.store = store
        self._check = check
        self._found: list[int] | None = None  # only who owns the log writes any
        self._parts = TaskParts(store)
        self._last: tuple[int, pa.Table] | None = None  # each is asked for several times, and never changes

    def name(self, number: int) -> str:
        """Return the file of a batch."""
        return segment_of(number)

    def numbers(self) -> list[int]:
        """Return which batches there are."""
        if self._found is None:
            self._found = [number_of(name) for name in self.store.names(FOLDER)]
        return self._found

    @property
    def newest(self) -> int:
        """Return the number of the newest batch; 0: there is none."""
        return max(self.numbers(), default=0)

    def exists(self, number: int) -> bool:
        """Whether this batch has been published."""
        return number in self.numbers()

    def opens(self, number: int) -> bool:
        """Whether this batch is there, also if a listing does not show it yet: NFS is late with those."""
        if self.exists(number):
            return True
        try:
            self._segment(number)
        except RedeliveryError:
            return False
        self._found = sorted({*self.numbers(), number})
        return True

    def publish(self, number: int, rows: pa.Table) -> bool:
        """Publish a batch, durably; False: it is there already, and what is there counts.

        Raises LogTaken: then it does not count, and no message of it may be let go of.
        """
        self._check()
        if not self.store.publish(self.name(number), written(rows)):
            return False
        self._check()  # again: this process may have stood still in between
        self._found = sorted({*self.numbers(), number})
        self._last = number, rows
        return True

    def follow(self, settled: int, number: int, *, there: bool) -> bool:
        """Return whether batch `number` is to be settled, of a log that has come to `settled`; `there`: it is known.

        Raises:
            ConfigurationError: the log and the checkpoint do not belong together.
        """
        newest = self.newest
        if number < max(settled, newest - 1):
            raise ConfigurationError(
                f"walDir: the write-ahead log has come to batch {newest}, and the checkpoint only to {number}: "
                "the checkpoint is older than the log, or another query's, or was written with "
                "asyncProgressTrackingEnabled, which this source cannot follow",
                option="walDir",
            )
        if number != settled and not there and not self.opens(number):
            raise ConfigurationError(
                f"walDir: the checkpoint has come to batch {number}, and the write-ahead log has none: the log is "
                "older than the checkpoint, or another query's",
                option="walDir",
            )
        return number != settled

    def slices(self, number: int) -> list[tuple[int, int]]:
        """Return which rows of a segment are read together. They were written with it: verdicts go by them."""
        table = self._segment(number)
        parts = _told(table, SLICES, 1)
        size = -(-table.num_rows // parts)
        return [(at, min(at + size, table.num_rows)) for at in range(0, table.num_rows, size or 1)]

    def shares(self, number: int) -> Shares:
        """Return what tasks take for a batch."""
        table = self._segment(number)
        return Shares(_told(table, SHARES, 0), _told(table, SHARE, 0), _told(table, SIZE, 0))

    def own(self, number: int) -> int:
        """Return how many rows of a batch are in its segment."""
        return self._segment(number).num_rows

    def close(self, number: int) -> int | None:
        """Have no task take anything more for a batch; return how much was undecodable, None: no task was to."""
        tasks = self.shares(number).tasks
        return self._parts.close(number, tasks) if tasks else None

    def taken(self, number: int) -> list[tuple[str, int, int]]:
        """Have no task take anything more for a batch; return what was taken: each part's file, and its rows."""
        if self.close(number) is None:
            return []
        return [
            (name, 0, table.num_rows)
            for name, table in zip(self._parts.of(number), self._parts.read(number), strict=True)
        ]

    def read(self, number: int) -> pa.Table:
        """Return the rows of a batch, first those of its segment. Raises RedeliveryError if it is gone."""
        table = self._segment(number)
        if not _told(table, SHARES, 0):
            return table
        return pa.concat_tables([table.replace_schema_metadata(), *self._parts.read(number)])

    def _segment(self, number: int) -> pa.Table:
        if self._last is None or self._last[0] != number:
            self._last = number, read_table(self.store, self.name(number))
        return self._last[1]

    def drop_settled(self, number: int) -> None:
        """Remove settled batches, but for the last few. Parts go last: attempts that come late look for the batch."""
        old = [each for each in self.numbers() if each <= number - KEPT]
        self.store.remove(map(self.name, old))
        self._found = [each for each in self.numbers() if each not in old]
        if old:
            self._parts.drop_before(number - KEPT + 1)


def segment_of(number: int) -> str:
    """Return the file of a batch."""
    return f"{FOLDER}/{number:012d}.arrow"


def sliced(rows: pa.Table, slices: int, shares: Shares = NO_SHARES) -> pa.Table:
    """Return rows with the number of their slices, and of what tasks take besides."""
    told = {SLICES: str(slices)}
    if shares.tasks:
        told |= {SHARES: str(shares.tasks), SHARE: str(shares.messages), SIZE: str(shares.size)}
    return rows.replace_schema_metadata(told)


def _told(table: pa.Table, name: bytes, default: int) -> int:
    found = (table.schema.metadata or {}).get(name)
    return default if found is None else int(found)

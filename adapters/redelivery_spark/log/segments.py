"""The content of batches: one Arrow file each, published once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import ipc

from redelivery.errors import RedeliveryError
from redelivery_spark.schema import SEGMENT

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery_spark.log.store import Store

__all__ = ["FOLDER", "KEPT", "Segments", "empty", "read_table", "sliced", "written"]

FOLDER = "segments"
SLICES = b"slices"
KEPT = 3
"""Settled segments that stay: a broker that did not read the last acknowledgements sends those messages again."""


class Segments:
    """The batches of one log, by number. `check` raises LogTaken if the log is somebody else's by now."""

    def __init__(self, store: Store, check: Callable[[], None]) -> None:
        self._store = store
        self._check = check
        self._found: list[int] | None = None  # only who owns the log writes any

    def name(self, number: int) -> str:
        """Return the file of a batch."""
        return f"{FOLDER}/{number:012d}.arrow"

    def numbers(self) -> list[int]:
        """Return which batches there are."""
        if self._found is None:
            self._found = [int(name.rpartition("/")[2][:12]) for name in self._store.names(FOLDER)]
        return self._found

    def exists(self, number: int) -> bool:
        """Whether this batch has been published."""
        return number in self.numbers()

    def publish(self, number: int, rows: pa.Table) -> bool:
        """Publish a batch, durably; False: it is there already, and what is there counts.

        Raises LogTaken: then it does not count, and no message of it may be let go of.
        """
        self._check()
        if not self._store.publish(self.name(number), written(rows)):
            return False
        self._check()  # again: this process may have stood still in between
        self._found = sorted({*self.numbers(), number})
        return True

    def slices(self, number: int) -> list[tuple[int, int]]:
        """Return which rows of a batch are read together. They were written with it: verdicts go by them."""
        table = self.read(number)
        parts = int((table.schema.metadata or {}).get(SLICES, b"1"))
        size = -(-table.num_rows // parts)
        return [(at, min(at + size, table.num_rows)) for at in range(0, table.num_rows, size or 1)]

    def read(self, number: int) -> pa.Table:
        """Return the rows of a batch. Raises RedeliveryError if it is gone."""
        return read_table(self._store, self.name(number))

    def drop_settled(self, number: int) -> None:
        """Remove settled batches, but for the last few."""
        old = [each for each in self.numbers() if each <= number - KEPT]
        self._store.remove(map(self.name, old))
        self._found = [each for each in self.numbers() if each not in old]


def sliced(rows: pa.Table, parts: int) -> pa.Table:
    """Return rows with the number of their slices."""
    return rows.replace_schema_metadata({SLICES: str(parts)})


def empty() -> pa.Table:
    """Return no rows."""
    return SEGMENT.empty_table()


def written(rows: pa.Table) -> memoryview:
    """Return rows as the bytes of a file."""
    sink = pa.BufferOutputStream()
    with ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)
    return memoryview(sink.getvalue())


def read_table(store: Store, name: str) -> pa.Table:
    """Return the rows of a file. Raises RedeliveryError if it is gone."""
    path = store.local(name)
    try:
        if path is not None:
            with pa.memory_map(path) as file:
                return ipc.open_file(file).read_all()
        content = store.read(name)
    except FileNotFoundError:
        content = None
    if content is None:
        raise RedeliveryError(f"the write-ahead log has no {name}: was its folder changed by somebody else?")
    return ipc.open_file(pa.BufferReader(content)).read_all()

"""Rows of the write-ahead log as Arrow files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import ipc

from redelivery.errors import RedeliveryError

if TYPE_CHECKING:
    from redelivery_spark.wal.wal_store import WalStore

__all__ = ["number_of", "read_table", "written"]


def number_of(name: str) -> int:
    """Return the number in the name of a log file."""
    return int(name.rpartition("/")[2][:12])


def written(rows: pa.Table) -> memoryview:
    """Return rows as the bytes of a file."""
    sink = pa.BufferOutputStream()
    with ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)
    return memoryview(sink.getvalue())


def read_table(store: WalStore, name: str) -> pa.Table:
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
        raise RedeliveryError(f"walDir={store.url}: {name} is missing; was it removed by another program?")
    return ipc.open_file(pa.BufferReader(content)).read_all()

"""Rows of the write-ahead log as Arrow files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import ipc

from redelivery_spark.wal.checked_file import FileMissing, damaged, read_checked

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
    """Return the rows of a file.

    The file is read, not mapped: a bad sector, or a file that becomes shorter, would end the process by a signal.

    Raises:
        FileMissing: It is gone.
        LogDamaged: It is not what was written.
    """
    content = read_checked(store, name)
    if content is None:
        raise FileMissing(f"walDir={store.url}: {name} is missing; was it removed by another program?")
    try:
        table = ipc.open_file(pa.BufferReader(content)).read_all()
        # Arrow reads memory at whatever offsets a column has. Files of earlier versions have no checksum.
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise damaged(store, name, str(error).split("\n", 1)[0]) from None
    return table

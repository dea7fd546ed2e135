"""Rows of the write-ahead log as Arrow files."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import ipc

from redelivery_spark.wal.checked_file import FileMissing, damaged, read_checked

if TYPE_CHECKING:
    from redelivery_spark.wal.wal_store import WalStore

__all__ = ["number_of", "read_table", "written"]


def number_of(name: str) -> int:
    """Return the number in the name of a log file."""
    return int(name.rpartition("/")[2][:12])


class _Pieces(io.RawIOBase):
    """File of what Arrow writes: the buffers of columns are not copied, which costs as much as half of a checksum."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[memoryview] = []

    def writable(self) -> bool:
        """True: as Arrow asks."""
        return True

    def write(self, piece: Any) -> int:
        """Add a piece."""
        self.found.append(memoryview(piece))
        return len(piece)


def written(rows: pa.Table) -> list[memoryview]:
    """Return rows as the content of a file, in pieces."""
    file = _Pieces()
    with ipc.new_file(pa.PythonFile(file, "w"), rows.schema) as writer:
        writer.write_table(rows)
    return file.found


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

"""Segments of the write-ahead log as Arrow files: rows as the broker sent them, and the facts that they share."""

from __future__ import annotations

import io
import json
from array import array
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
from pyarrow import ipc

from redelivery.errors import RedeliveryError
from redelivery_spark.wal.checked_file import FileMissing, damaged, read_checked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redelivery_spark.wal.places import Place
    from redelivery_spark.wal.wal_store import WalStore

__all__ = [
    "MOST_BYTES",
    "MOST_ROWS",
    "STORED",
    "SegmentFacts",
    "facts_of",
    "folder_of",
    "number_of",
    "read_table",
    "redelivered_table",
    "segment_name",
    "stored_table",
    "written",
]


# ---- Segment schema --------------------------------------------------------------------------------------
# File of a segment: rows as the broker sent them, and the facts that they share.
#
# A lane's segment has the bytes before the body (`head`) and the body; if `body` is null, `head` includes it. Lane 0
# is for redeliveries. Its rows also have their first place in the log, the count of this delivery, and the number of
# the segment's wire that restores them. A *wire* is the argument of `redelivery.driver.port.restorer`.

MOST_ROWS = 5_000
MOST_BYTES = 8 << 20
STORED = pa.schema([pa.field("head", pa.binary()), pa.field("body", pa.binary())])
"""Columns of lanes 1 and up."""
REDELIVERED = pa.schema(
    [
        *STORED,
        pa.field("origin", pa.int64()),
        pa.field("count", pa.int32()),
        pa.field("wire", pa.int16()),
        pa.field("arrived", pa.float64()),
    ]
)
"""Columns of lane 0."""


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """Facts that all rows of a segment share.

    `at`: time of publication, in seconds since the Unix epoch. `log`: the log's uuid, in hex. `alone`: True if it must
    be the only segment of its batch. `connection`: name of the connection that brought the rows; empty in lane 0.
    """

    at: float
    log: str
    wires: tuple[Mapping[str, str], ...]
    alone: bool = False
    connection: str = ""


def folder_of(lane: int) -> str:
    """Return the folder of a lane's segments."""
    return f"s{lane}"


def segment_name(lane: int, number: int) -> str:
    """Return the name of a segment in the log."""
    return f"{folder_of(lane)}/{number:012d}.arrow"


def stored_table(heads: Sequence[bytes], bodies: Sequence[bytes | None], facts: SegmentFacts) -> pa.Table:
    """Return the segment of a lane from the results of `Delivery.stored()` for each row."""
    return _table([_binary(heads), _binary(bodies)], STORED, facts)


def redelivered_table(
    heads: Sequence[bytes],
    bodies: Sequence[bytes | None],
    origins: Sequence[Place],
    counts: Sequence[int],
    wires: Sequence[int],
    arrived: Sequence[float],
    facts: SegmentFacts,
) -> pa.Table:
    """Return a segment of lane 0.

    `wires`: index in `facts.wires` for each row; `arrived`: arrival of its message, in seconds since the Unix epoch.
    """
    columns = zip((heads, bodies, origins, counts, wires, arrived), REDELIVERED, strict=True)
    arrays = [pa.array(column, field.type) for column, field in columns]
    return _table(arrays, REDELIVERED, facts)


def facts_of(schema: pa.Schema) -> SegmentFacts:
    """Return the facts in a segment's schema. Raises RedeliveryError if it is not the schema of a segment."""
    content: Mapping[bytes, bytes] = schema.metadata or {}
    try:
        return SegmentFacts(
            at=float(content[b"at"]),
            log=content[b"log"].decode(),
            wires=tuple(json.loads(content[b"wires"])),
            alone=content.get(b"alone") == b"1",
            connection=content.get(b"connection", b"").decode(),
        )
    except (KeyError, ValueError, AttributeError, TypeError) as error:
        raise RedeliveryError(f"not a segment of the write-ahead log: {error!r}") from None


def _binary(values: Sequence[bytes | None]) -> pa.Array:
    """Return bytes as a column, made of one piece.

    Arrow's builder doubles its memory as it grows, and the system must clear as much each time. That costs 5 µs for a
    body of 1 kB if other memory was used in between; this way costs 0.5 µs.
    """
    if None in values:
        return pa.array(values, pa.binary())
    whole = cast("Sequence[bytes]", values)
    ends = array("i", accumulate(map(len, whole), initial=0))
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(whole))]
    column: pa.Array = pa.Array.from_buffers(pa.binary(), len(whole), buffers)
    return column


def _table(arrays: list[pa.Array], columns: pa.Schema, facts: SegmentFacts) -> pa.Table:
    schema = columns.with_metadata(_metadata(facts))
    return pa.Table.from_batches([pa.RecordBatch.from_arrays(arrays, schema=schema)], schema)


def _metadata(facts: SegmentFacts) -> dict[str, str]:
    content = {
        "at": repr(float(facts.at)),
        "log": facts.log,
        "wires": json.dumps([dict(wire) for wire in facts.wires]),
    }
    if facts.alone:
        content["alone"] = "1"
    if facts.connection:
        content["connection"] = facts.connection
    return content


# ---- Arrow files -----------------------------------------------------------------------------------------
# Rows of the write-ahead log as Arrow files.


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

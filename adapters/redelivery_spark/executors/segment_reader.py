"""Conversion of write-ahead log segments to the columns of Spark's rows. Pure: the same rows at each reading.

Only the requested columns are made. The place, the times of the log and the body need no restored message.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from redelivery.driver.port import column_reader, restorer
from redelivery.errors import RedeliveryError
from redelivery_spark.executors.crumbs import this_task
from redelivery_spark.schema import ERROR, PLACE, TEXT, message_column, stream_schema
from redelivery_spark.wal.checked_file import damaged
from redelivery_spark.wal.places import place, tag_of
from redelivery_spark.wal.records import Records, Refusal, Verdict, verdict_name
from redelivery_spark.wal.segment_files import facts_of, read_table, segment_name
from redelivery_spark.wal.store import store_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from redelivery.core.delivery import Delivery
    from redelivery.core.head_columns import HeadColumns
    from redelivery_spark.wal.segment_files import SegmentFacts
    from redelivery_spark.wal.wal_store import WalStore

__all__ = ["DECODE_MARK", "SegmentPart", "SegmentSlice", "UndecodableBody", "decoded", "rows_of"]


# ---- Decoding --------------------------------------------------------------------------------------------
# Decoding of bodies to text, as the option `decode` asks for.


class UndecodableBody(RedeliveryError):
    """A body is not what `decode` asks for, and `onDecodeError=fail`. Another run of the batch would fail, too."""


def decoded(body: bytes, decode: str) -> tuple[str | None, str | None]:
    """Return a body as text, and the reason why it cannot be decoded; one of the two is None.

    Args:
        body: Body of the message.
        decode: `text` (UTF-8), or `json` (which is checked, and stays text).
    """
    try:
        text = body.decode()
        if decode == "json":
            json.loads(text)
    # UnicodeDecodeError and JSONDecodeError are ValueErrors.
    except (ValueError, RecursionError) as error:
        return None, f"cannot be decoded as {decode}: {type(error).__name__}: {_where(error)}"
    return text, None


def _where(error: Exception) -> str:
    """Return the place of the error, without quoting the body."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at character {error.pos}"
    if isinstance(error, UnicodeDecodeError):
        return f"{error.reason} at byte {error.start}"
    return "nested too deeply" if isinstance(error, RecursionError) else "it has no meaning"


# ---- Segment reader --------------------------------------------------------------------------------------

logger = logging.getLogger("redelivery.spark")
DECODE_MARK = "decode"
"""Name in place of the handler's, in verdicts on rows that cannot be decoded."""
# Rows of one Arrow batch: Spark's default (spark.sql.execution.arrow.maxRecordsPerBatch).
_MOST = 10_000
# Number of requested columns from which on all headers are read at once.
_MANY = 4
_ALL = stream_schema(text=True, error=True)
# Columns whose name differs from that of the delivery's property.
_SAID = {"message_id": "identity", "properties": "headers"}
_SAYING = {
    "identity", "destination", "content_type", "correlation_id", "reply_to", "timestamp", "redelivered", "headers",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class SegmentPart:
    """Rows `begin` to `end` (exclusive) of one segment."""

    lane: int
    number: int
    begin: int
    end: int


class SegmentSlice(InputPartition):
    """Rows that one task reads, and how. Picklable; it holds no credentials.

    Args:
        wal_dir: URL of the write-ahead log.
        parts: The rows, in the order of the output.
        columns: Names of the columns, in order.
        decode: `none`, `text` or `json`.
        on_decode_error: `poison`, `permissive` or `fail`.
    """

    def __init__(
        self,
        wal_dir: str,
        parts: tuple[SegmentPart, ...],
        columns: tuple[str, ...],
        decode: str = "none",
        on_decode_error: str = "poison",
    ) -> None:
        super().__init__(parts)
        self.wal_dir = wal_dir
        self.parts = parts
        self.columns = columns
        self.decode = decode
        self.on_decode_error = on_decode_error


def rows_of(given: SegmentSlice) -> Iterator[pa.RecordBatch]:
    """Return the rows of a slice as Arrow batches, without refused rows that cannot be decoded.

    Raises:
        RedeliveryError: The log cannot be read; or a body cannot be decoded and `on_decode_error` is `fail`.
        ConfigurationError: The package of the messages' protocol is not installed here.
    """
    store, tag = store_at(given.wal_dir), tag_of(given.wal_dir)
    schema = pa.schema([_ALL.field(name) for name in given.columns])
    for part in given.parts:
        name = segment_name(part.lane, part.number)
        table = read_table(store, name)
        # Arrow's `slice` says nothing beyond the end. Files of earlier versions are not bound to their place.
        if table.num_rows < part.end:
            raise damaged(store, name, f"it has {table.num_rows} rows, and {part.end} are asked for")
        facts = facts_of(table.schema)
        for begin in range(part.begin, part.end, _MOST):
            end = min(part.end, begin + _MOST)
            rows = table.slice(begin, end - begin).combine_chunks()
            first = place(part.lane, tag, part.number)
            stored = _StoredRows(rows, facts, part.lane, first, range(begin, end), given.columns)
            stored = _decodable(stored, given, store)
            yield pa.RecordBatch.from_arrays([stored.column(name) for name in schema.names], schema=schema)


class _StoredRows:
    """Some rows of one segment, and the columns that were made of them."""

    def __init__(
        self,
        table: pa.Table,
        facts: SegmentFacts,
        lane: int,
        first: int,
        numbers: Sequence[int],
        columns: Sequence[str],
    ) -> None:
        self.table = table
        self.numbers = numbers
        self._facts = facts
        self._lane = lane
        self._first = first
        self._columns = columns
        self._deliveries: dict[int, Delivery] = {}
        self._read: tuple[Sequence[HeadColumns], Sequence[int]] | None = None
        self.made: dict[str, pa.Array] = {}
        self._makers: Mapping[str, Callable[[], pa.Array]] = {
            "body": self._body,
            "properties": self._properties,
            "message_id": self._message_ids,
            "delivered_at": self._delivered_at,
            "delivery_count": self._counts,
            PLACE: lambda: pa.array(self.places(), pa.int64()),
        }

    def places(self) -> list[int]:
        """Return the places of the rows."""
        return [self._first + row for row in self.numbers]

    def counts(self) -> list[int]:
        """Return the delivery counts of the rows."""
        counts: list[int] = self.column("delivery_count").to_pylist()
        return counts

    def only(self, rows: Sequence[int]) -> _StoredRows:
        """Return some of the rows, by their positions here."""
        taken = pa.array(rows, pa.int64())
        numbers = [self.numbers[row] for row in rows]
        table = self.table.take(taken).combine_chunks()
        found = _StoredRows(table, self._facts, self._lane, self._first, numbers, self._columns)
        found.made = {name: column.take(taken) for name, column in self.made.items()}
        return found

    def column(self, name: str) -> pa.Array:
        """Return a column."""
        if name not in self.made:
            maker = self._makers.get(name)
            self.made[name] = self._of_messages(name) if maker is None else maker()
        return self.made[name]

    def _stored(self, name: str) -> pa.Array:
        chunks = self.table.column(name).chunks
        return chunks[0] if chunks else pa.array([], self.table.schema.field(name).type)

    def _heads(self) -> tuple[Sequence[HeadColumns], Sequence[int]]:
        """Return the heads of the messages, read column by column, and the rows that must be restored one by one."""
        if self._read is None:
            every = range(len(self.numbers))
            wires = {0} if self._lane else set(self._stored("wire").to_pylist())
            read = column_reader(self._facts.wires[wires.pop()]) if len(wires) == 1 else None
            if read is None:
                self._read = (), every
            else:
                asked = {_SAID.get(name, name) for name in self._columns} & _SAYING
                groups = read(self._stored("head").to_pylist(), asked)
                known = set(chain.from_iterable(group.rows for group in groups))
                self._read = groups, [row for row in every if row not in known]
        return self._read

    def _order(self) -> list[int]:
        """Return the position of each row in the sequence of all groups' rows, followed by the unread rows."""
        groups, rest = self._heads()
        placed = list(chain(*(group.rows for group in groups), rest))
        return sorted(range(len(placed)), key=placed.__getitem__)

    def _said(self, name: str) -> Sequence[Any]:
        """Return one property of the messages."""
        groups, rest = self._heads()
        if len(groups) == 1 and not rest:
            return groups[0].values[name]
        found = [*chain.from_iterable(group.values[name] for group in groups)]
        found += map(attrgetter(name), self._restored(rest))
        return [found[at] for at in self._order()] if groups else found

    def _restored(self, rows: Sequence[int]) -> list[Delivery]:
        """Return some of the messages as deliveries."""
        known = self._deliveries
        wanted = [row for row in rows if row not in known]
        if wanted:
            facts, table = self._facts, self.table
            if len(wanted) < len(self.numbers):
                table = table.take(pa.array(wanted, pa.int64()))
            restores = [restorer(wire) for wire in facts.wires]
            heads, bodies = table.column("head").to_pylist(), table.column("body").to_pylist()
            if self._lane:
                restore, at = restores[0], facts.at
                pairs = zip(heads, bodies, strict=True)
                made: list[Delivery] = [restore(head, body, at) for head, body in pairs]
            else:
                wires, arrived = table.column("wire").to_pylist(), table.column("arrived").to_pylist()
                each = zip(wires, heads, bodies, arrived, strict=True)
                made = [restores[wire](head, body, at) for wire, head, body, at in each]
            # Reading all headers at once costs as much as reading a few of them one by one.
            if "properties" in self._columns or len(self._columns) >= _MANY:
                for delivery in made:
                    delivery.read_ahead()
            known.update(zip(wanted, made, strict=True))
        return [known[row] for row in rows]

    def _of_messages(self, name: str) -> pa.Array:
        """Return a column of the messages' own properties."""
        if name == "redelivered" and not self._lane:
            return pa.array([True] * len(self.numbers), pa.bool_())
        return pa.array(self._said(name), _ALL.field(name).type)

    def _body(self) -> pa.Array:
        bodies = self._stored("body")
        if not bodies.null_count:
            return bodies
        found = bodies.to_pylist()
        without = [row for row, body in enumerate(found) if body is None]
        for row, delivery in zip(without, self._restored(without), strict=True):
            found[row] = delivery.body
        return pa.array(found, pa.binary())

    def _message_ids(self) -> pa.Array:
        identities = self._said("identity")
        if None in identities:
            origins = self.places() if self._lane else self._stored("origin").to_pylist()
            log = self._facts.log[:8]
            named = zip(identities, origins, strict=True)
            identities = [f"{log}/{origin}" if each is None else each for each, origin in named]
        return pa.array(identities, pa.string())

    def _delivered_at(self) -> pa.Array:
        kind = _ALL.field("delivered_at").type
        return pa.array([round(self._facts.at * 1e6)] * len(self.numbers), kind)

    def _counts(self) -> pa.Array:
        if not self._lane:
            return self._stored("count")
        return pa.array([1] * len(self.numbers), pa.int32())

    def _properties(self) -> pa.Array:
        groups, rest = self._heads()
        parts = [_map_of(group) for group in groups]
        if rest or not parts:
            parts.append(message_column("properties", self._restored(rest)))
        if len(parts) == 1:
            return parts[0]
        ordered: pa.Array = pa.concat_arrays(parts).take(pa.array(self._order(), pa.int64()))
        return ordered


def _map_of(heads: HeadColumns) -> pa.Array:
    rows, width = len(heads.rows), len(heads.names)
    values = list(chain.from_iterable(zip(*heads.properties, strict=True)))
    ends = range(0, rows * width + 1, width) if width else [0] * (rows + 1)
    keys = pa.array([*heads.names] * rows, pa.string())
    found: pa.Array = pa.MapArray.from_arrays(pa.array(ends, pa.int32()), keys, pa.array(values, pa.string()))
    return found


def _decodable(stored: _StoredRows, given: SegmentSlice, store: WalStore) -> _StoredRows:
    """Add the decoded bodies. Rows that cannot be decoded are left out and refused, if that is asked for."""
    asked = {TEXT, ERROR} & set(given.columns)
    if given.decode == "none" or (given.on_decode_error == "permissive" and not asked):
        return stored
    found = [decoded(body, given.decode) for body in stored.column("body").to_pylist()]
    stored.made[TEXT] = pa.array([text for text, _ in found], pa.string())
    stored.made[ERROR] = pa.array([error for _, error in found], pa.string())
    wrong = {row: error for row, (_, error) in enumerate(found) if error is not None}
    if not wrong or given.on_decode_error == "permissive":
        return stored
    if given.on_decode_error == "fail":
        row, error = next(iter(wrong.items()))
        identity = stored.column("message_id")[row].as_py()
        destination = stored.column("destination")[row].as_py()
        raise UndecodableBody(
            f"{destination}: message {identity} {error}; use onDecodeError=poison or onDecodeError=permissive"
        )
    _refuse(stored, wrong, store)
    return stored.only([row for row in range(len(found)) if row not in wrong])


def _refuse(stored: _StoredRows, wrong: Mapping[int, str], store: WalStore) -> None:
    """Publish the verdict on rows that cannot be decoded. It is the same in each attempt."""
    task = this_task()
    if task is None:
        raise RedeliveryError("rows of a stream can be read only in a batch of its query")
    places, counts = stored.places(), stored.counts()
    refused = {places[row]: Refusal(counts[row], "poison", error) for row, error in wrong.items()}
    Records(store).judge(
        verdict_name(task.batch, DECODE_MARK, list(refused)), Verdict(list(refused), refused), durable=True
    )

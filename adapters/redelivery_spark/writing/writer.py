"""Classes that Spark calls for a write: each task sends its rows and ends when the broker has confirmed them."""

from __future__ import annotations

import hashlib
import logging
import uuid
from collections import Counter, deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Self, cast

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
)

from redelivery.driver.port import ConnectionPort, outgoing
from redelivery.errors import AdapterError, ConfigurationError, RedeliveryError, TransportError, near_miss
from redelivery_spark.options.option_mistakes import OptionMistakes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    import pyarrow as pa

    from redelivery.clock import Clock
    from redelivery.core.outgoing import Outgoing
    from redelivery.driver.port import PendingSend, SendOptions
    from redelivery_spark.options.source_options import WriteOptions

__all__ = ["BatchWriter", "Identities", "SendingConnection", "StreamWriter", "Written", "messages_of"]


# ---- Write columns ---------------------------------------------------------------------------------------
# Conversion of rows to messages: the possible columns, their types, and their meaning.

_WHOLE: tuple[type[DataType], ...] = (ByteType, ShortType, IntegerType, LongType)
_SECONDS: tuple[type[DataType], ...] = (*_WHOLE, FloatType, DoubleType, DecimalType, DayTimeIntervalType)
_VALUES: tuple[type[DataType], ...] = (StringType, BooleanType, *_WHOLE, FloatType, DoubleType)


class _Column(NamedTuple):
    types: tuple[type[DataType], ...]
    words: str


_TEXT = _Column((StringType,), "string")
COLUMNS: dict[str, _Column] = {
    "body": _Column((BinaryType, StringType), "binary or string"),
    "destination": _TEXT,
    "properties": _Column((MapType,), "map<string, string>, or of booleans or numbers"),
    "content_type": _TEXT,
    "correlation_id": _TEXT,
    "reply_to": _TEXT,
    "group": _TEXT,
    "priority": _Column(_WHOLE, "a whole number"),
    "persistent": _Column((BooleanType,), "boolean"),
    "ttl": _Column(_SECONDS, "a number of seconds, or an interval"),
    "delay": _Column(_SECONDS, "a number of seconds, or an interval"),
}
"""Columns of a write: the arguments of `send`."""
_READ_ONLY = frozenset({"message_id", "timestamp", "redelivered", "delivery_count"})
_BODY_READ = frozenset({"text", "_error"})


def check_columns(schema: StructType, destination: str | None) -> None:
    """Refuse columns that cannot be sent. Raises ConfigurationError, which lists all of them."""
    mistakes = OptionMistakes()
    names = [field.name for field in schema.fields]
    for name, kind in {field.name: field.dataType for field in schema.fields}.items():
        column = COLUMNS.get(name)
        if column is None:
            mistakes.refuse(name, f"column {name}: {_unknown(name)}")
        elif names.count(name) > 1:
            mistakes.refuse(name, f"column {name}: named twice; keep one")
        elif not isinstance(kind, column.types) or not _map_fits(kind):
            mistakes.refuse(name, f"column {name}: is {kind.simpleString()}, and must be {column.words}")
    if "body" not in names:
        hint = near_miss("body", [name for name in names if name not in COLUMNS])
        mistakes.refuse("body", f"column body: missing; add it, as binary or string{hint}")
    if destination is None and "destination" not in names:
        mistakes.refuse(
            "destination", "destination: missing; give the option destination, or a column of that name"
        )
    mistakes.check("the columns")


def messages_of(
    batch: pa.RecordBatch, destination: str | None, clock: Clock, first: int
) -> list[tuple[tuple[Any, ...], Outgoing]]:
    """Return the values of each row with its message; `first`: the number of the first row, for errors.

    Raises:
        ConfigurationError: A row cannot be sent.
    """
    names: list[str] = batch.schema.names
    columns = [column.to_pylist() for column in batch.columns]
    made: list[tuple[tuple[Any, ...], Outgoing]] = []
    for number, row in enumerate(zip(*columns, strict=True), first):
        try:
            made.append((row, _message(names, row, destination, clock)))
        except ConfigurationError as error:
            raise ConfigurationError(
                f"row {number} of its partition was not sent: {error}", option=error.option
            ) from None
    return made


def _message(names: Sequence[str], row: Sequence[Any], destination: str | None, clock: Clock) -> Outgoing:
    told = {name: value for name, value in zip(names, row, strict=True) if value is not None}
    body = told.pop("body", None)
    if body is None:
        raise ConfigurationError("its body is null", option="body")
    target = told.pop("destination", destination)
    if target is None:
        raise ConfigurationError(
            "its destination is null, and there is no option destination", option="destination"
        )
    properties = told.pop("properties", None)
    if properties is not None:  # a null is not a property
        told["headers"] = {name: value for name, value in properties if value is not None}
    for name in ("ttl", "delay"):
        if name in told and not hasattr(told[name], "total_seconds"):
            told[name] = float(told[name])
    return outgoing(target, body, cast("SendOptions", told), clock)[1]


def _map_fits(kind: DataType) -> bool:
    return not isinstance(kind, MapType) or (
        isinstance(kind.keyType, StringType) and isinstance(kind.valueType, _VALUES)
    )


def _unknown(name: str) -> str:
    if name in _READ_ONLY:
        return "set by the broker, and cannot be sent; drop it"
    if name in _BODY_READ:
        return "not sent, the column body is; drop it"
    known = ", ".join(COLUMNS)
    return f"unknown{near_miss(name, COLUMNS)}; there are {known}"


# ---- Identity --------------------------------------------------------------------------------------------
# Ids of rows that are the same in each attempt to write them: equal ids mean equal content.

# Rows after which equal ones are numbered from 0 again: it bounds the memory.
BLOCK = 100_000


class Identities:
    """Gives the rows of one partition of one write their ids.

    An id depends on the content of a row, not on its position. An attempt that goes through the rows in another order
    gives each the same id, and a broker with duplicate detection drops no message that it does not have. Equal rows are
    numbered.
    """

    def __init__(self, write: str, partition: int) -> None:
        self._base = f"{write}/{partition}"
        self._rows = 0
        self._equal: Counter[bytes] = Counter()

    def of(self, row: Sequence[Any]) -> str:
        """Return the id of the next row."""
        block, place = divmod(self._rows, BLOCK)
        self._rows += 1
        if not place:
            self._equal.clear()
        content = hashlib.blake2b(repr(row).encode("utf-8", "surrogatepass"), digest_size=16).digest()
        number = self._equal[content]
        self._equal[content] += 1
        name = f"{self._base}/{block}/{content.hex()}/{number}".encode()
        return hashlib.blake2b(name, digest_size=16).hexdigest()


# ---- Sending connection ----------------------------------------------------------------------------------
# Connection that sends many messages without waiting for each confirmation.

MOST = 1000  # messages unconfirmed
# Bytes of their bodies; a single larger message is sent alone.
MOST_BYTES = 16 << 20


class SendingConnection:
    """Sends messages; `confirm` waits until the broker has confirmed all of them. Use it as a context manager."""

    def __init__(self, uri: str) -> None:
        self._port = ConnectionPort(uri)
        self._pending: deque[PendingSend] = deque()
        self._bytes = 0
        self.confirmed = 0
        """Number of messages that the broker has confirmed."""

    def __enter__(self) -> Self:
        """Connect. Raises as `ConnectionPort.__enter__` does."""
        self._port.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._port.close()

    @property
    def clock(self) -> Clock:
        """Clock of the connection."""
        return self._port.clock

    def put(self, message: Outgoing, identity: str) -> None:
        """Send a message under this id, once there is room for one more unconfirmed message.

        Raises:
            AdapterError: The broker refused a message.
            TransportError: The connection was lost, or a confirmation did not arrive in time.
        """
        headers = {**message.headers, "redeliveryId": identity}
        own = self._port.capabilities.duplicate_property
        if own is not None:
            headers[own] = identity
        message = replace(message, headers=headers)
        size = len(message.body)
        while self._pending and (len(self._pending) >= MOST or self._bytes + size > MOST_BYTES):
            self._await_first()
        self._pending.append(self._port.send_connected(message))
        self._bytes += size

    def confirm(self) -> int:
        """Wait until the broker has confirmed everything; return the number of messages. Raises as `put`."""
        while self._pending:
            self._await_first()
        return self.confirmed

    def _await_first(self) -> None:
        first = self._pending.popleft()
        self._bytes -= len(first.message.body)
        try:
            first.wait()
        except RedeliveryError as error:
            raise self._cause(error) from None
        self.confirmed += 1

    def _cause(self, error: RedeliveryError) -> RedeliveryError:
        """Return the cause of the failure: the broker's refusal, if the connection was lost because of it."""
        if isinstance(error, TransportError):
            for pending in self._pending:
                if isinstance(pending.error, AdapterError):
                    return pending.error
        return error


# ---- Writer ----------------------------------------------------------------------------------------------

logger = logging.getLogger("redelivery.spark")
_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"


@dataclass
class Written(WriterCommitMessage):
    """Number of messages that a task has sent and that the broker has confirmed."""

    messages: int


class BatchWriter(DataSourceArrowWriter):
    """Writer of one batch write. Its options hold nothing secret: each task reads the credentials where it connects."""

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise ConfigurationError(
                "mode=overwrite: messages on a queue cannot be replaced; use append", option="mode"
            )
        check_columns(schema, options.destination)
        self._options = options
        # Made once, on the Spark driver: it is the same in all attempts.
        self._write = options.run or uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:  # type: ignore[override]  # as its base does
        """Send the rows of a partition. Raises RedeliveryError."""
        return _sent(self._options, self._write, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Log how many messages were sent."""
        logger.info("%d messages sent", _total(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Log that sent messages stay sent."""
        logger.warning("the write failed; %d messages of finished tasks stay sent", _total(messages))


class StreamWriter(DataSourceStreamArrowWriter):
    """Writer of a query. A batch that is written again gives its rows the same ids as before."""

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise ConfigurationError(
                "outputMode=complete: messages on a queue cannot be replaced; use append",
                option="outputMode",
            )
        if options.run is not None:
            raise ConfigurationError(
                "run: has no effect for df.writeStream, where the query and its batch name a write; remove it",
                option="run",
            )
        check_columns(schema, options.destination)
        self._options = options
        # Used without Spark, where no query has an id.
        self._write = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:  # type: ignore[override]  # as its base does
        """Send the rows of a partition. Raises RedeliveryError."""
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty(_QUERY)
        batch = None if context is None else context.getLocalProperty(_BATCH)
        write = self._write if query is None or batch is None else f"{query}/{batch}"
        return _sent(self._options, write, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        """Log how many messages were sent."""
        logger.info("batch %d: %d messages sent", batchId, _total(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        """Log that sent messages stay sent."""
        logger.warning("batch %d: failed; %d messages of finished tasks stay sent", batchId, _total(messages))


def _sent(options: WriteOptions, write: str, iterator: Iterator[pa.RecordBatch]) -> Written:
    """Send all rows; without rows, do not connect."""
    context = TaskContext.get()
    identities = Identities(write, 0 if context is None else context.partitionId())
    first = next((batch for batch in iterator if batch.num_rows), None)
    if first is None:
        return Written(0)
    number = 0
    with SendingConnection(options.connection_uri()) as outlet:
        for batch in _all(first, iterator):
            for row, message in messages_of(batch, options.destination, outlet.clock, number):
                outlet.put(message, identities.of((message.destination, *row)))
            number += batch.num_rows
        return Written(outlet.confirm())


def _all(first: pa.RecordBatch, others: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from others


def _total(messages: Sequence[WriterCommitMessage | None]) -> int:
    return sum(each.messages for each in messages if isinstance(each, Written))

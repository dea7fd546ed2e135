"""Classes that Spark calls for a write: each task sends its rows and ends when the broker has confirmed them."""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from redelivery.errors import ConfigurationError
from redelivery_spark.writing.identity import Identities
from redelivery_spark.writing.sending_connection import SendingConnection
from redelivery_spark.writing.write_columns import check_columns, messages_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from redelivery_spark.options.write_options import WriteOptions

__all__ = ["BatchWriter", "StreamWriter", "Written"]

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

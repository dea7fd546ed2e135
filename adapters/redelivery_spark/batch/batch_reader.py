"""Classes that Spark calls for a batch read: thin ones, over browsing and draining."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from redelivery_spark.batch.browse import browsed
from redelivery_spark.batch.drain import drained
from redelivery_spark.batch.read_columns import DEATH, ShownColumns, shown_schema
from redelivery_spark.options.spark_option import NEEDS, chosen

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from redelivery_spark.options.source_options import ReadOptions

__all__ = ["BatchReader", "QueuePart", "batch_reader"]


class QueuePart(InputPartition):
    """Partition of one queue; None: the broker's own dead-letter queue."""

    def __init__(self, queue: str | None) -> None:
        super().__init__(queue)
        self.queue = queue


class BatchReader(DataSourceReader):
    """Reader of one batch read. Its options hold nothing secret: each task reads the credentials where it connects."""

    def __init__(self, options: ReadOptions, names: tuple[str, ...]) -> None:
        self._options = options
        self._names = names

    def partitions(self) -> list[QueuePart]:
        """Return one partition for each queue."""
        return [QueuePart(queue) for queue in self._options.queues]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of a queue as Arrow batches, with the requested columns. Raises RedeliveryError."""
        assert isinstance(partition, QueuePart)
        options, queue = self._options, partition.queue
        columns = ShownColumns(options, self._names)
        if options.mode == "browse":
            return browsed(options, queue, columns)
        assert queue is not None, "checked where options are read"
        return drained(options, queue, columns)


def batch_reader(options: ReadOptions, schema: StructType | None = None) -> BatchReader:
    """Return the reader of a batch read.

    Args:
        options: Options of the read.
        schema: The schema that Spark hands over: the query's own, or all columns; None: all columns.

    Raises:
        ConfigurationError: The schema has a column that does not exist, or has another type.
    """
    there = shown_schema(options)
    if schema is None:
        return BatchReader(options, tuple(there.names))
    needs = NEEDS | {field.name: "deadLetters=true" for field in DEATH}
    return BatchReader(options, tuple(chosen(schema, there, needs)))

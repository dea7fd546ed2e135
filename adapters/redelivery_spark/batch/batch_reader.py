"""What Spark calls for a batch read: thin classes over a look and a drain."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from redelivery_spark.batch.browse import browsed
from redelivery_spark.batch.drain import drained
from redelivery_spark.batch.filters import Condition, kept, understood
from redelivery_spark.batch.read_columns import shown, shown_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql.datasource import Filter

    from redelivery_spark.options.batch_options import ReadOptions

__all__ = ["BatchReader", "FilteringBatchReader", "QueuePart", "batch_reader"]

_ASKS_FOR_FILTERS = "pyspark.sql.worker.data_source_pushdown_filters"


class QueuePart(InputPartition):
    """One queue; None: the broker's own dead-letter queue."""

    def __init__(self, queue: str | None) -> None:
        super().__init__(queue)
        self.queue = queue


class BatchReader(DataSourceReader):
    """One read. Its options hold nothing secret: each task reads the credentials where it connects."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._conditions: tuple[Condition, ...] = ()

    def partitions(self) -> list[QueuePart]:
        """Return one partition for each queue."""
        return [QueuePart(queue) for queue in self._options.queues]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Go through the rows of a queue. Raises RedeliveryError."""
        assert isinstance(partition, QueuePart)
        options, queue = self._options, partition.queue
        if options.mode == "browse":
            found = browsed(options, queue)
        else:
            assert queue is not None, "checked where options are read"
            found = drained(options, queue)
        for batch in found:
            rows = kept(batch, self._conditions) if self._conditions else batch
            if rows.num_rows:
                yield shown(rows, options)


class FilteringBatchReader(BatchReader):
    """The same where Spark hands over its filters."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take what can be applied here, exactly; return the others."""
        columns = shown_schema(self._options).names
        for each in filters:
            condition = understood(each, columns)
            if condition is None:
                yield each
            else:
                self._conditions += (condition,)


def batch_reader(options: ReadOptions) -> BatchReader:
    """Return a reader as Spark takes it: one with `pushFilters` is an error where filters are not pushed down.

    No configuration reaches this process. But Spark asks for filters in a worker of its own, which has this module.
    Only on request: Spark 4.3 keeps one read function for all scans of a DataFrame, that of the last filters which it
    pushed, so `df.filter(…)` would leave rows out of a later `df`.
    """
    if not options.push_filters:
        return BatchReader(options)
    pushed = _ASKS_FOR_FILTERS in sys.modules or _is_main(_ASKS_FOR_FILTERS)
    return FilteringBatchReader(options) if pushed else BatchReader(options)


def _is_main(name: str) -> bool:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return getattr(spec, "name", None) == name

"""The data source `redelivery` as Spark finds it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource
from pyspark.sql.pandas.types import from_arrow_schema

from redelivery.errors import ConfigurationError
from redelivery_spark.api.wal_location import marked
from redelivery_spark.batch.batch_reader import batch_reader
from redelivery_spark.batch.read_columns import shown_schema
from redelivery_spark.options.batch_options import read_batch_options
from redelivery_spark.options.column_choice import chosen
from redelivery_spark.options.spark_option import READ, STREAM, named, use_told
from redelivery_spark.options.stream_options import read_options
from redelivery_spark.options.write_options import read_write_options
from redelivery_spark.schema import stream_schema
from redelivery_spark.stream.stream_reader import RedeliveryStreamReader
from redelivery_spark.wal.store import log_at
from redelivery_spark.writing.writer import BatchWriter, StreamWriter

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from redelivery_spark.batch.batch_reader import BatchReader
    from redelivery_spark.options.stream_options import SourceOptions

__all__ = ["RedeliveryDataSource"]


class RedeliveryDataSource(DataSource):
    """`format("redelivery")`, of a stream or not. Options are checked as soon as it is known what they are for."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._given = dict(options)
        self._used = False
        named(self._given)

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: of one that was used, no options. Spark's read function holds it, and they may be secret."""
        if not self._used:
            return dict(self.__dict__)
        return {**self.__dict__, "options": {}, "_given": {}}

    @classmethod
    def name(cls) -> str:
        """Return what `format` takes."""
        return "redelivery"

    @property
    def _read(self) -> SourceOptions:
        return read_options(self._given)

    def schema(self) -> StructType:
        """Return the columns; a stream's first one tells where the log is, for `process` and `foreach_batch`."""
        use = use_told(self._given)
        if use != STREAM:
            try:
                found: StructType = from_arrow_schema(shown_schema(read_batch_options(self._given)))
            except ConfigurationError as error:
                if use == READ:
                    raise
                told = f"{error}; and if this is for readStream, option walDir is missing"
                raise ConfigurationError(told, option=error.option) from None
            return found
        read = self._read
        # At `load()`, and not when the query has begun.
        log_at(read.wal_dir)
        return marked(from_arrow_schema(stream_schema(text=read.text, error=read.error)), read.wal_dir)

    def streamReader(self, schema: StructType) -> RedeliveryStreamReader:
        """Return a reader. Called in several processes, so it does no I/O."""
        self._used = True
        try:
            read = self._read
            columns = chosen(schema, stream_schema(text=read.text, error=read.error))
            return RedeliveryStreamReader(read, columns)
        except ConfigurationError as error:
            return RedeliveryStreamReader(error)

    def reader(self, schema: StructType) -> BatchReader:
        """Return a batch reader."""
        read = read_batch_options(self._given)
        self._used = True
        return batch_reader(read, schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Return a writer of these columns."""
        return BatchWriter(read_write_options(self._given), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """Return a query's writer of these columns. Made anew for each commit."""
        return StreamWriter(read_write_options(self._given), schema, overwrite=overwrite)

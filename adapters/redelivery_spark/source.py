"""Data source `redelivery`, as Spark finds it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource
from pyspark.sql.pandas.types import from_arrow_schema

from redelivery.errors import ConfigurationError
from redelivery_spark.api.wal_location import marked
from redelivery_spark.batch.batch_reader import batch_reader
from redelivery_spark.batch.read_columns import shown_schema
from redelivery_spark.options.option_mistakes import OptionMistakes
from redelivery_spark.options.source_options import read_batch_options, read_options, read_write_options
from redelivery_spark.options.spark_option import READ, STREAM, chosen, missing, named, use_told
from redelivery_spark.schema import stream_schema
from redelivery_spark.stream.stream_reader import RedeliveryStreamReader
from redelivery_spark.wal.store import log_at
from redelivery_spark.writing.writer import BatchWriter, StreamWriter

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from redelivery_spark.batch.batch_reader import BatchReader
    from redelivery_spark.options.source_options import SourceOptions

__all__ = ["RedeliveryDataSource"]


class RedeliveryDataSource(DataSource):
    """Data source of `format("redelivery")`, for streams and batches, read and written.

    Spark makes it with the options of a query. An option that does not exist is refused here. All others are checked at
    `load()`, or when a writer is made.
    """

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._given = dict(options)
        self._used = False
        self._refuse_unknown()

    def __getstate__(self) -> dict[str, Any]:
        """Return the pickled state: no options after use. Spark's read function holds it, and they can be secret."""
        if not self._used:
            return dict(self.__dict__)
        return {**self.__dict__, "options": {}, "_given": {}}

    @classmethod
    def name(cls) -> str:
        """Return `redelivery`, the name that `format` takes."""
        return "redelivery"

    def _refuse_unknown(self) -> None:
        """Raise an error over options that do not exist, and over all other mistakes that are known here."""
        mistakes = OptionMistakes()
        ours, _ = named(self._given, mistakes)
        if not mistakes:
            return
        use = use_told(self._given)
        if use == STREAM:
            read_options(self._given)
        elif use == READ:
            read_batch_options(self._given)
        if "url" not in ours and not mistakes.concern("url"):
            mistakes.refuse("url", missing("url"))
        mistakes.check()

    @property
    def _read(self) -> SourceOptions:
        return read_options(self._given)

    def schema(self) -> StructType:
        """Return the columns. Those of a stream carry its `walDir` as metadata, for `process` and `foreach_batch`.

        Raises:
            ConfigurationError: An option is missing, unknown, contradictory or out of its range.
        """
        use = use_told(self._given)
        if use != STREAM:
            try:
                found: StructType = from_arrow_schema(shown_schema(read_batch_options(self._given)))
            except ConfigurationError as error:
                if use == READ:
                    raise
                raise _maybe_of_a_stream(error) from None
            return found
        read = self._read
        # Checked at `load()`: the user's call fails, not the query after its start.
        log_at(read.wal_dir)
        return marked(from_arrow_schema(stream_schema(text=read.text, error=read.error)), read.wal_dir)

    def streamReader(self, schema: StructType) -> RedeliveryStreamReader:
        """Return the reader of a stream. Spark calls it in several processes: it does no I/O.

        An error of the options is raised by the reader's first call: Spark reports one of this method badly.
        """
        self._used = True
        try:
            read = self._read
            columns = chosen(schema, stream_schema(text=read.text, error=read.error))
            return RedeliveryStreamReader(read, columns)
        except ConfigurationError as error:
            return RedeliveryStreamReader(error)

    def reader(self, schema: StructType) -> BatchReader:
        """Return the reader of a batch.

        Raises:
            ConfigurationError: An option, or a column of the schema, is missing, unknown or contradictory.
        """
        read = read_batch_options(self._given)
        self._used = True
        return batch_reader(read, schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Return a writer of these columns.

        Raises:
            ConfigurationError: An option or a column cannot be honoured, or the mode is overwrite.
        """
        return BatchWriter(read_write_options(self._given), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """Return a query's writer of these columns. Spark makes a new one for each commit.

        Raises:
            ConfigurationError: An option or a column cannot be honoured, or the output mode is complete.
        """
        return StreamWriter(read_write_options(self._given), schema, overwrite=overwrite)


def _maybe_of_a_stream(error: ConfigurationError) -> ConfigurationError:
    """Return the error of a batch read that may be a stream without `walDir`: Spark does not report the use."""
    missing = "if this is for readStream, walDir is missing"
    joined = f"\n{missing}, too" if len(error.errors) > 1 else f"; and {missing}"
    return ConfigurationError(f"{error}{joined}", option=error.option, errors=[*error.errors, missing])

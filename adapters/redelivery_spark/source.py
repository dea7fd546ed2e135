"""The data source `redelivery` as Spark finds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource
from pyspark.sql.pandas.types import from_arrow_schema

from redelivery_spark.options import read_options
from redelivery_spark.places import marked
from redelivery_spark.schema import SEGMENT, columns_for
from redelivery_spark.stream_reader import RedeliveryStreamReader

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["RedeliveryDataSource"]


class RedeliveryDataSource(DataSource):
    """`spark.readStream.format("redelivery")`. Its options are checked when it is made; nothing else happens then."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._read = read_options(options)

    @classmethod
    def name(cls) -> str:
        """Return what `format` takes."""
        return "redelivery"

    def schema(self) -> StructType:
        """Return the columns; the first one tells where the log is, for `process` and `foreach_batch`."""
        names = columns_for(text=self._read.text, error=self._read.error)
        return marked(
            from_arrow_schema(pa.schema([SEGMENT.field(name) for name in names])), self._read.wal_dir
        )

    def streamReader(self, schema: StructType) -> RedeliveryStreamReader:
        """Return a reader. Called in several processes, so it does no I/O."""
        del schema
        return RedeliveryStreamReader(self._read)

"""Location of a DataFrame's write-ahead log, which its source writes into the metadata of columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pyspark.sql.types import StructField, StructType

from redelivery.errors import ConfigurationError
from redelivery_spark.schema import PLACE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

__all__ = ["handlers_of", "marked", "wal_dir_of"]

WAL_DIR = "redelivery.walDir"
HANDLERS = "redelivery.handlers"


def marked(schema: StructType, wal_dir: str, handlers: Sequence[str] = ()) -> StructType:
    """Return a schema with metadata: the log's location, and the marks of the handlers that have had the rows.

    The first column and `_place` carry it. `process` and `foreach_batch` read it from the one that a query has left.
    """
    noted: dict[str, object] = {WAL_DIR: wal_dir}
    if handlers:
        noted[HANDLERS] = list(handlers)
    carriers = {schema.fields[0].name, PLACE} if schema.fields else set[str]()
    return StructType(
        [
            StructField(each.name, each.dataType, each.nullable, {**(each.metadata or {}), **noted})
            if each.name in carriers
            else each
            for each in schema.fields
        ]
    )


def handlers_of(df: DataFrame) -> list[str]:
    """Return the marks of the handlers that have had the rows of a DataFrame, if its metadata has them."""
    noted = ((field.metadata or {}).get(HANDLERS) for field in df.schema.fields)
    found = [cast("list[str]", each) for each in noted if isinstance(each, list)]
    return max(found, key=len, default=list[str]())


def wal_dir_of(df: DataFrame, given: str | None, caller: str) -> str:
    """Return the given folder, or that of the log that a DataFrame was read from. Raises ConfigurationError."""
    if given is not None:
        return given
    for field in df.schema.fields:
        found = (field.metadata or {}).get(WAL_DIR)
        if isinstance(found, str):
            return found
    raise ConfigurationError(
        f"{caller}: the DataFrame does not carry its walDir (an aggregation, a join or a select "
        "has dropped the source's columns, or it was read with a schema of your own); give wal_dir=, the walDir of its "
        "source",
        option="wal_dir",
    )

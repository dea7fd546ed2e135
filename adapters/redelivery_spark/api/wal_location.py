"""Where the log of a DataFrame is: its source says so in the metadata of a column."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pyspark.sql.types import StructField, StructType

from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

__all__ = ["handlers_of", "marked", "wal_dir_of"]

WAL_DIR = "redelivery.walDir"
HANDLERS = "redelivery.handlers"


def marked(schema: StructType, wal_dir: str, handlers: Sequence[str] = ()) -> StructType:
    """Return a schema whose first column tells where the log is, and which handlers have had the rows."""
    first, *others = schema.fields
    told = {**(first.metadata or {}), WAL_DIR: wal_dir}
    if handlers:
        told[HANDLERS] = list(handlers)
    return StructType([StructField(first.name, first.dataType, first.nullable, told), *others])


def handlers_of(df: DataFrame) -> list[str]:
    """Return the marks of the handlers that have had the rows of a DataFrame, as far as it tells."""
    told = ((field.metadata or {}).get(HANDLERS) for field in df.schema.fields)
    found = [cast("list[str]", each) for each in told if isinstance(each, list)]
    return max(found, key=len, default=list[str]())


def wal_dir_of(df: DataFrame, given: str | None, caller: str) -> str:
    """Return the folder of the log that a DataFrame was read from, unless it is given. Raises ConfigurationError."""
    if given is not None:
        return given
    for field in df.schema.fields:
        found = (field.metadata or {}).get(WAL_DIR)
        if isinstance(found, str):
            return found
    raise ConfigurationError(
        f"{caller}: the DataFrame does not tell which log it comes from (message_id was computed anew); give wal_dir=, "
        "the walDir of its source",
        option="wal_dir",
    )

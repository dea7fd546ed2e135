"""`.schema(…)` before `load()`: the columns that a query asks for, in its order, or one error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from redelivery.errors import ConfigurationError
from redelivery_spark.batch.read_columns import shown_schema
from redelivery_spark.options.source_options import read_batch_options
from redelivery_spark.options.spark_option import chosen

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType

TEXT = StringType()


def available(**options: str) -> pa.Schema:
    """Return the columns of a look at a queue."""
    return shown_schema(read_batch_options({"url": "memory://b", "destination": "a"} | options))


def asked(**columns: DataType) -> StructType:
    """Return a schema as `.schema(…)` makes one."""
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def test_all_columns_are_the_default() -> None:
    """The source's own schema selects all columns, in its order."""
    there = available(decode="text", onDecodeError="permissive", deadLetters="true")
    assert chosen(from_arrow_schema(there), there) == there.names


def test_columns_come_in_the_order_that_they_are_asked_for() -> None:
    """Columns are in the requested order and have their own types; nullability is not compared."""
    schema = asked(
        timestamp=TimestampType(), body=BinaryType(), properties=MapType(TEXT, TEXT, False), message_id=TEXT
    )
    assert chosen(schema, available()) == ["timestamp", "body", "properties", "message_id"]
    strict = StructType([StructField("delivery_count", IntegerType(), False)])
    assert chosen(strict, available()) == ["delivery_count"]


REFUSED = [
    (asked(bodi=BinaryType()), "schema: unknown column bodi; did you mean 'body'"),
    (asked(Body=BinaryType()), "schema: unknown column Body; did you mean 'body'"),
    (asked(quux=TEXT), "schema: unknown column quux; there are message_id, destination, body"),
    (asked(text=TEXT), "schema: unknown column text; it needs decode=text or decode=json"),
    (asked(_error=TEXT), "schema: unknown column _error; it needs decode and onDecodeError=permissive"),
    (asked(body=TEXT), "schema: column body string: its type is binary; use 'body binary'"),
    (asked(delivery_count=LongType()), "schema: column delivery_count bigint: its type is int"),
    (
        asked(properties=MapType(TEXT, LongType())),
        "schema: column properties map<string,bigint>: its type is map<string,string>",
    ),
    (
        StructType([StructField("body", BinaryType()), StructField("body", BinaryType())]),
        "schema: column body is named twice",
    ),
    (asked(), "schema: no column is named"),
]


@pytest.mark.parametrize(("schema", "words"), REFUSED)
def test_what_is_no_column_is_refused(schema: StructType, words: str) -> None:
    """An error names the column, and the correct one."""
    with pytest.raises(ConfigurationError, match=words) as caught:
        chosen(schema, available())
    assert caught.value.option == "schema"


def test_one_error_lists_all_mistakes_of_a_schema() -> None:
    """An error has each wrong column on a line of its own, in the order of the schema."""
    with pytest.raises(ConfigurationError) as caught:
        chosen(asked(bodi=BinaryType(), message_id=TEXT, delivery_count=LongType()), available())
    assert caught.value.errors == [
        "schema: unknown column bodi; did you mean 'body'?",
        "schema: column delivery_count bigint: its type is int; use 'delivery_count int'",
    ]
    assert str(caught.value).startswith("2 mistakes in the schema:\n")

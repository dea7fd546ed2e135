"""Columns that a query asks for: `.schema("message_id string, body binary")` before `load()`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.pandas.types import from_arrow_schema

from redelivery.errors import near_miss
from redelivery_spark.options.option_mistakes import OptionMistakes
from redelivery_spark.schema import ERROR, TEXT

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["NEEDS", "chosen"]

NEEDS = {TEXT: "decode=text or decode=json", ERROR: "decode and onDecodeError=permissive"}
"""Columns that exist with other options only, and those options."""


def chosen(schema: StructType, available: pa.Schema, needs: Mapping[str, str] = NEEDS) -> list[str]:
    """Return the names of the columns that a schema asks for, in its order.

    Args:
        schema: The schema that Spark hands to `reader` and `streamReader`: the query's own, or all columns.
        available: Columns that exist with the given options.
        needs: For columns of other options: the options that they need.

    Raises:
        ConfigurationError: Columns are unknown, of another type, or named twice; or there is none. It lists all.
    """
    there = {field.name: field.dataType for field in from_arrow_schema(available)}
    mistakes, found = OptionMistakes(), list[str]()
    for field in schema.fields:
        name, kind = field.name, field.dataType.simpleString()
        if name not in there:
            hint = f"; it needs {needs[name]}" if name in needs else near_miss(name, there)
            hint = hint or "; there are " + ", ".join(there)
            mistakes.refuse("schema", f"schema: unknown column {name}{hint}")
        elif kind != (right := there[name].simpleString()):
            mistakes.refuse(
                "schema", f"schema: column {name} {kind}: its type is {right}; use '{name} {right}'"
            )
        elif name in found:
            mistakes.refuse("schema", f"schema: column {name} is named twice; name it once")
        else:
            found.append(name)
    if not schema.fields:
        mistakes.refuse("schema", "schema: no column is named; name at least one")
    mistakes.check("the schema")
    return found

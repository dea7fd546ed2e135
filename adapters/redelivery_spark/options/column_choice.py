"""Columns that a query asks for: `.schema("message_id string, body binary")` before `load()`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.pandas.types import from_arrow_schema

from redelivery.errors import ConfigurationError, near_miss
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
        ConfigurationError: A column is unknown, of another type, or named twice; or there is none.
    """
    there = {field.name: field.dataType for field in from_arrow_schema(available)}
    found: list[str] = []
    for field in schema.fields:
        name = field.name
        if name not in there:
            hint = f"; it needs {needs[name]}" if name in needs else near_miss(name, there)
            raise ConfigurationError(
                f"schema: unknown column {name}{hint or '; there are ' + ', '.join(there)}", option="schema"
            )
        kind, right = field.dataType.simpleString(), there[name].simpleString()
        if kind != right:
            raise ConfigurationError(
                f"schema: column {name} {kind}: its type is {right}; use '{name} {right}'", option="schema"
            )
        if name in found:
            raise ConfigurationError(f"schema: column {name} is named twice; name it once", option="schema")
        found.append(name)
    if not found:
        raise ConfigurationError("schema: no column is named; name at least one", option="schema")
    return found

"""Conversion of handlers' return values to the columns of `result=`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
from pyspark.sql import Row

from redelivery.errors import RedeliveryError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["result_batch"]


def result_batch(made: Sequence[object], schema: pa.Schema) -> pa.RecordBatch:
    """Return an Arrow batch of rows, each a tuple, list, dict, Row or single value. A key that a dict lacks is null.

    Raises RedeliveryError if a value does not fit.
    """
    names = schema.names
    rows = [_values(each, names) for each in made]
    arrays = [_array([row[at] for row in rows], field) for at, field in enumerate(schema)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(values: list[Any], field: pa.Field) -> pa.Array:
    try:
        array = pa.array([_plain(value, field.type) for value in values], field.type)
    except Exception as error:  # noqa: BLE001 - Arrow's, OverflowError, and those that the values themselves raise
        said = str(error).split("\n", 1)[0]
        raise RedeliveryError(
            f"the handler returned a value that does not fit the column {field.name} {field.type} of result=: {said}"
        ) from None
    if array.null_count and not field.nullable:
        raise RedeliveryError(
            f"the handler returned None for the column {field.name} of result=, which must not be null"
        )
    return array


def _plain(value: Any, kind: pa.DataType) -> Any:
    """Return a value in the form that Arrow takes: a map as pairs, a struct as a dict."""
    if isinstance(value, dict) and pa.types.is_map(kind):
        return list(cast("Mapping[Any, Any]", value).items())
    if isinstance(value, Row) and pa.types.is_struct(kind):
        return value.asDict(recursive=True)
    return cast("object", value)


def _values(made: object, names: list[str]) -> tuple[Any, ...]:
    kind = type(made).__name__
    if isinstance(made, dict):
        given = cast("Mapping[str, Any]", made)
        if unknown := [str(name) for name in given if name not in names]:
            raise RedeliveryError(f"the handler returned {unknown[0]}, which is not a column of result=")
        return tuple(given.get(name) for name in names)
    if isinstance(made, tuple | list):
        values = tuple(cast("list[Any]", made))
        if len(values) == len(names):
            return values
    elif len(names) == 1:
        return (made,)
    raise RedeliveryError(
        f"the handler returned {kind}, which does not fit the {len(names)} columns of result="
    )

"""Spark's filters that are applied where messages are read: what they leave out is not shipped."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.datasource import Filter

__all__ = ["Condition", "kept", "understood"]

_TEXTS = frozenset({
    "message_id", "destination", "correlation_id", "original_destination", "original_id", "cause",
})  # fmt: skip
_NUMBERS = frozenset({"delivery_count", "redelivery_count", "redrives"})
_TIMES = frozenset({"timestamp", "first_failure", "dead_lettered_at"})
_COMPARISONS: dict[type[Filter], str] = {
    EqualTo: "equal",
    GreaterThan: "greater",
    GreaterThanOrEqual: "greater_equal",
    LessThan: "less",
    LessThanOrEqual: "less_equal",
}


class Condition(NamedTuple):
    """One filter: a comparison, `is_in` or `is_null`, of a column with a value. Pickled with the reader."""

    column: str
    test: str
    value: Any = None
    negated: bool = False


def understood(asked: Filter, columns: Sequence[str]) -> Condition | None:
    """Return the condition that means exactly what a filter means to Spark, or None: then Spark applies it."""
    if isinstance(asked, Not):
        inner = understood(asked.child, columns)
        return None if inner is None else inner._replace(negated=not inner.negated)
    # Spark's classes of filters have no common type with what they hold.
    given: Any = asked
    path: tuple[str, ...] = getattr(given, "attribute", ())
    if len(path) != 1 or path[0] not in columns:
        return None
    column = path[0]
    if isinstance(asked, IsNull | IsNotNull):
        known = column in _TEXTS | _NUMBERS | _TIMES
        return Condition(column, "is_null", negated=isinstance(asked, IsNotNull)) if known else None
    if isinstance(asked, In):
        values = list(given.value)
        fits = bool(values) and all(_fits(column, value) for value in values)
        return Condition(column, "is_in", values) if fits else None
    test = _COMPARISONS.get(type(asked))
    if test is None or not _fits(column, given.value):
        return None
    return Condition(column, test, given.value)


def kept(batch: pa.RecordBatch, conditions: Sequence[Condition]) -> pa.RecordBatch:
    """Return the rows that all conditions hold for; a comparison with null holds for none, as in SQL."""
    for condition in conditions:
        column = batch.column(condition.column)
        if condition.test == "is_null":
            mask = column.is_null()
        elif condition.test == "is_in":
            found = pc.is_in(column, value_set=pa.array(condition.value, column.type))
            mask = pc.if_else(column.is_valid(), found, pa.scalar(None, pa.bool_()))
        else:
            mask = getattr(pc, condition.test)(column, pa.scalar(condition.value, column.type))
        batch = batch.filter(pc.invert(mask) if condition.negated else mask)
    return batch


def _fits(column: str, value: object) -> bool:
    if column in _TEXTS:
        return isinstance(value, str)
    if column in _NUMBERS:
        return isinstance(value, int) and not isinstance(value, bool) and -(2**31) <= value < 2**31
    # What has no time zone would have to be read in the session's, which is not known here.
    return column in _TIMES and isinstance(value, datetime) and value.tzinfo is not None

"""Conversion of rows to messages: the possible columns, their types, and their meaning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
)

from redelivery.driver.port import outgoing
from redelivery.errors import ConfigurationError, near_miss
from redelivery_spark.options.option_mistakes import OptionMistakes

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from redelivery.clock import Clock
    from redelivery.core.outgoing import Outgoing
    from redelivery.driver.port import SendOptions

__all__ = ["COLUMNS", "check_columns", "messages_of"]

_WHOLE: tuple[type[DataType], ...] = (ByteType, ShortType, IntegerType, LongType)
_SECONDS: tuple[type[DataType], ...] = (*_WHOLE, FloatType, DoubleType, DecimalType, DayTimeIntervalType)
_VALUES: tuple[type[DataType], ...] = (StringType, BooleanType, *_WHOLE, FloatType, DoubleType)


class _Column(NamedTuple):
    types: tuple[type[DataType], ...]
    words: str


_TEXT = _Column((StringType,), "string")
COLUMNS: dict[str, _Column] = {
    "body": _Column((BinaryType, StringType), "binary or string"),
    "destination": _TEXT,
    "properties": _Column((MapType,), "map<string, string>, or of booleans or numbers"),
    "content_type": _TEXT,
    "correlation_id": _TEXT,
    "reply_to": _TEXT,
    "group": _TEXT,
    "priority": _Column(_WHOLE, "a whole number"),
    "persistent": _Column((BooleanType,), "boolean"),
    "ttl": _Column(_SECONDS, "a number of seconds, or an interval"),
    "delay": _Column(_SECONDS, "a number of seconds, or an interval"),
}
"""Columns of a write: the arguments of `send`."""
_READ_ONLY = frozenset({"message_id", "timestamp", "redelivered", "delivery_count"})
_BODY_READ = frozenset({"text", "_error"})


def check_columns(schema: StructType, destination: str | None) -> None:
    """Refuse columns that cannot be sent. Raises ConfigurationError, which lists all of them."""
    mistakes = OptionMistakes()
    names = [field.name for field in schema.fields]
    for name, kind in {field.name: field.dataType for field in schema.fields}.items():
        column = COLUMNS.get(name)
        if column is None:
            mistakes.refuse(name, f"column {name}: {_unknown(name)}")
        elif names.count(name) > 1:
            mistakes.refuse(name, f"column {name}: named twice; keep one")
        elif not isinstance(kind, column.types) or not _map_fits(kind):
            mistakes.refuse(name, f"column {name}: is {kind.simpleString()}, and must be {column.words}")
    if "body" not in names:
        hint = near_miss("body", [name for name in names if name not in COLUMNS])
        mistakes.refuse("body", f"column body: missing; add it, as binary or string{hint}")
    if destination is None and "destination" not in names:
        mistakes.refuse(
            "destination", "destination: missing; give the option destination, or a column of that name"
        )
    mistakes.check("the columns")


def messages_of(
    batch: pa.RecordBatch, destination: str | None, clock: Clock, first: int
) -> list[tuple[tuple[Any, ...], Outgoing]]:
    """Return the values of each row with its message; `first`: the number of the first row, for errors.

    Raises:
        ConfigurationError: A row cannot be sent.
    """
    names: list[str] = batch.schema.names
    columns = [column.to_pylist() for column in batch.columns]
    made: list[tuple[tuple[Any, ...], Outgoing]] = []
    for number, row in enumerate(zip(*columns, strict=True), first):
        try:
            made.append((row, _message(names, row, destination, clock)))
        except ConfigurationError as error:
            raise ConfigurationError(
                f"row {number} of its partition was not sent: {error}", option=error.option
            ) from None
    return made


def _message(names: Sequence[str], row: Sequence[Any], destination: str | None, clock: Clock) -> Outgoing:
    told = {name: value for name, value in zip(names, row, strict=True) if value is not None}
    body = told.pop("body", None)
    if body is None:
        raise ConfigurationError("its body is null", option="body")
    target = told.pop("destination", destination)
    if target is None:
        raise ConfigurationError(
            "its destination is null, and there is no option destination", option="destination"
        )
    properties = told.pop("properties", None)
    if properties is not None:  # a null is not a property
        told["headers"] = {name: value for name, value in properties if value is not None}
    for name in ("ttl", "delay"):
        if name in told and not hasattr(told[name], "total_seconds"):
            told[name] = float(told[name])
    return outgoing(target, body, cast("SendOptions", told), clock)[1]


def _map_fits(kind: DataType) -> bool:
    return not isinstance(kind, MapType) or (
        isinstance(kind.keyType, StringType) and isinstance(kind.valueType, _VALUES)
    )


def _unknown(name: str) -> str:
    if name in _READ_ONLY:
        return "set by the broker, and cannot be sent; drop it"
    if name in _BODY_READ:
        return "not sent, the column body is; drop it"
    known = ", ".join(COLUMNS)
    return f"unknown{near_miss(name, COLUMNS)}; there are {known}"

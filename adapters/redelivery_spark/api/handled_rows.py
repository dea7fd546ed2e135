"""Rows as a handler gets them, and its results as Arrow batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from pyspark.sql import Row

from redelivery_spark.api.result_columns import result_batch
from redelivery_spark.api.user_functions import check_result
from redelivery_spark.schema import PLACE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redelivery_spark.executors.crumbs import Crumb
    from redelivery_spark.wal.places import Place

__all__ = ["Decisions", "handled"]


class Decisions(Protocol):
    """Decisions on the rows of an Arrow batch."""

    def out(self, at: Place) -> bool:
        """True if a row is not in the output."""
        ...

    def refuse(self, at: Place, count: int, error: Exception) -> None:
        """Mark a row to be redelivered, or raise."""

    def publish(self) -> None:
        """Publish the decisions, before a row is passed on."""


def handled(
    batch: pa.RecordBatch,
    handler: Callable[[Row], object],
    result: pa.Schema | None,
    verdict: Decisions,
    crumb: Crumb,
) -> pa.RecordBatch:
    """Run a handler over the rows of an Arrow batch; return its results once the verdict on the rows is published.

    `result`: schema of the columns that the handler returns; None: return the rows that pass, unchanged. Raises
    ConfigurationError if the handler returns a coroutine or a generator: no verdict is published.
    """
    places: list[Any] = batch.column(PLACE).to_pylist()
    counts: list[Any] = batch.column("delivery_count").to_pylist()
    passed: list[int] = []
    made: list[object] = []
    make = Row(*batch.schema.names)
    for number, values in enumerate(zip(*map(_values, batch.columns), strict=True)):
        at = places[number]
        if verdict.out(at):
            continue
        crumb.handling(at)
        try:
            value = handler(make(*values))
        except Exception as error:  # noqa: BLE001 - whatever the user's code raises
            verdict.refuse(at, counts[number], error)
            continue
        except KeyboardInterrupt:
            # Pressed at the console: not the fault of a row.
            raise
        except BaseException:
            # SystemExit, a panic of native code: they end the worker process.
            crumb.keep()
            raise
        check_result(value, "handler")
        if result is None or value is not None:
            passed.append(number)
            made.append(value)
    crumb.rest()
    if result is None:
        verdict.publish()
        return _kept(batch, [number for number in passed if not verdict.out(places[number])])
    fit, columns = _fitting(made, result, [(places[number], counts[number]) for number in passed], verdict)
    verdict.publish()
    return _kept(columns, [at for at, row in enumerate(fit) if not verdict.out(places[passed[row]])])


def _kept(batch: pa.RecordBatch, rows: Sequence[int]) -> pa.RecordBatch:
    return batch if len(rows) == batch.num_rows else batch.take(pa.array(rows, pa.int64()))


def _fitting(
    made: list[object], schema: pa.Schema, whose: list[tuple[Place, int]], verdict: Decisions
) -> tuple[Sequence[int], pa.RecordBatch]:
    """Return the positions of the values that fit their columns, and the columns; refuse the rows of the others."""
    try:
        return range(len(made)), result_batch(made, schema)
    except Exception:  # noqa: BLE001 - Arrow's are of many kinds, and the values are the user's
        fit: list[int] = []
        for number, each in enumerate(made):
            try:
                result_batch([each], schema)
            except Exception as error:  # noqa: BLE001
                verdict.refuse(*whose[number], error)
            else:
                fit.append(number)
        return fit, result_batch([made[number] for number in fit], schema)


def _values(column: pa.Array) -> list[Any]:
    """Return the values of a column as a handler gets them: a map as a dict, a timestamp in UTC."""
    if pa.types.is_map(column.type):
        return [None if each is None else dict(each) for each in column.to_pylist()]
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        column = column.cast(pa.timestamp(column.type.unit, "UTC"))
    values: list[Any] = column.to_pylist()
    return values

"""`process`: a handler for each row. Rows that fail are redelivered and do not end the query. Runs in executors.

A batch can run more than once: after a failure of the query, and for each action in `foreachBatch`. The handler is
called again then, and the first decision on a row counts (`executors/verdict.py`). A refused row stays out. A row that
passed once and fails later raises its error: the query fails and runs the same batch again.
"""

from __future__ import annotations

from pickle import PicklingError
from typing import TYPE_CHECKING, Any, Protocol, cast

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from redelivery.classifier import Classifier, checked_errors
from redelivery.errors import ConfigurationError, RedeliveryError
from redelivery_spark.api.run import brief
from redelivery_spark.api.user_functions import check_function, check_result, mark_of
from redelivery_spark.api.wal_location import handlers_of, marked, wal_dir_of
from redelivery_spark.executors.crumbs import Crumb, crumb_of, died_over, this_task
from redelivery_spark.executors.verdict import TaskVerdicts, Undecided
from redelivery_spark.schema import PLACE
from redelivery_spark.wal.places import tag_of
from redelivery_spark.wal.records import Records
from redelivery_spark.wal.store import store_at
from redelivery_spark.wal.wal_state import settled_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame

    from redelivery_spark.wal.places import Place

__all__ = ["process"]


# ---- Result columns --------------------------------------------------------------------------------------
# Conversion of handlers' return values to the columns of `result=`.


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


# ---- Handled rows ----------------------------------------------------------------------------------------
# Rows as a handler gets them, and its results as Arrow batches.


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
    for number, values in enumerate(zip(*map(_column_values, batch.columns), strict=True)):
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


def _column_values(column: pa.Array) -> list[Any]:
    """Return the values of a column as a handler gets them: a map as a dict, a timestamp in UTC."""
    if pa.types.is_map(column.type):
        return [None if each is None else dict(each) for each in column.to_pylist()]
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        column = column.cast(pa.timestamp(column.type.unit, "UTC"))
    values: list[Any] = column.to_pylist()
    return values


# ---- Process ---------------------------------------------------------------------------------------------

if TYPE_CHECKING:
    Handler = Callable[[Row], object]


def process(
    df: DataFrame,
    handler: Handler,
    result: str | StructType | None = None,
    *,
    name: str | None = None,
    wal_dir: str | None = None,
    errors: Classifier | None = None,
) -> DataFrame:
    """Return the results of `handler` for each row; a row whose handler raises is redelivered.

    A row whose handler raises is not in the result. Its message is redelivered in a later batch, after the delay of its
    policy, until its redeliveries are used up. It is then dead-lettered with the exception as its cause. The handler
    can raise `Poison`, `Discard` and `Defer`, as any handler.

    Each run of a batch calls the handler again. A row that was refused stays out. A row that has passed must not fail
    later, or the query fails. A row is also refused when the process died twice while handling it: a crash,
    `SystemExit`, a stop of the query. Rows with the same `_place` (after `union`, `explode`) are one message: if one
    fails, all are left out. Rows that a `limit` leaves out are not handled, and count as processed. Call `process`
    before a join of streams or another operator with a state: rows that it holds back for a later batch end the query.

    Args:
        df: Streaming DataFrame of the source `redelivery`, or the one that `foreachBatch` got of it, with at least the
            columns `_place` and `delivery_count`.
        handler: Called with a `Row` in an executor. `properties` is a dict, a timestamp an aware datetime in UTC. It
            returns a tuple, list, dict, Row or single value that fits `result`, or None for no row. It is a plain
            function: nothing awaits `async def`, and it must not yield.
        result: Columns that the handler returns, as DDL or StructType. A value that does not fit fails its row. A
            datetime without a time zone is taken as UTC. None: the rows that pass, unchanged; results are ignored.
        name: Name of this handler in the write-ahead log, the same at each start. None: its qualified name and the
            plain values that it was made with. Give a name if those change from start to start, or if two handlers of
            the same rows differ in neither.
        wal_dir: The source's `walDir`. None: the one in the metadata of the DataFrame's columns.
        errors: A `redelivery.Classifier`, without `retry(policy=…)`. None: each exception fails its row.

    Returns:
        A DataFrame with the columns of `result`, or of `df`.

    Raises:
        ConfigurationError: `handler` is not callable, is `async def`, or cannot be pickled; `df` lacks a column;
            `result` is not a schema; `name` is empty, or another handler's of these rows; `errors` has policies; or
            `df` does not carry its `walDir` and `wal_dir` is None.
    """
    check_function(handler, "handler", "one row")
    return _mapped(df, handler, result, name, wal_dir, _checked(df, errors))


def _mapped(
    df: DataFrame,
    handler: Handler,
    result: str | StructType | None,
    name: str | None,
    wal_dir: str | None,
    classifier: Classifier,
) -> DataFrame:
    folder = wal_dir_of(df, wal_dir, "process")
    columns = df.schema if result is None else _parsed(result)
    before = handlers_of(df)
    mark = mark_of(handler, name, columns.simpleString(), before)
    schema = marked(columns, folder, [*before, mark])
    arrow = None if result is None else to_arrow_schema(schema, timezone="UTC")
    try:
        return df.mapInArrow(_Task(handler, arrow, folder, mark, classifier), schema)
    except PicklingError as error:
        name = getattr(handler, "__qualname__", type(handler).__qualname__)
        why = str(error).removeprefix("Could not serialize object: ")
        raise ConfigurationError(
            f"process: {name} cannot be sent to the executors: {why}; make connections and locks inside of it",
            option="handler",
        ) from None


def _checked(df: DataFrame, errors: Classifier | None) -> Classifier:
    missing = {PLACE, "delivery_count"} - set(df.columns)
    if missing:
        raise ConfigurationError(
            f"process: the DataFrame has no column {' and no column '.join(sorted(missing))}; keep the columns _place "
            "and delivery_count of the source up to here",
            option="df",
        )
    classifier = checked_errors(errors) or Classifier()
    if classifier.policies:
        raise ConfigurationError(
            "errors=: retry(policy=…) is not supported here; give the destination a policy in the url",
            option="errors",
        )
    return classifier


def _parsed(result: str | StructType) -> StructType:
    if isinstance(result, StructType):
        return result
    try:
        return cast("StructType", StructType.fromDDL(result))
    except Exception as error:  # noqa: BLE001 - Spark's are of many kinds
        raise ConfigurationError(
            f"result={result!r}: not a schema ({brief(str(error))}); use DDL such as 'id string, total double'",
            option="result",
        ) from None


class _Task:
    """Function that each task runs over the Arrow batches of its partition, with one verdict for each."""

    def __init__(
        self, handler: Handler, result: pa.Schema | None, wal_dir: str, mark: str, classifier: Classifier
    ) -> None:
        self._handler = handler
        self._result = result
        self._store = store_at(wal_dir)
        self._tag = tag_of(wal_dir)
        self._mark = mark
        self._classifier = classifier

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = this_task()
        if task is None:
            for batch in batches:
                yield handled(batch, self._handler, self._result, Undecided(), Crumb(None))
            return
        deaths = died_over(self._store, task, self._mark)
        settled = settled_in(self._store)
        verdicts = TaskVerdicts(
            Records(self._store), task, self._mark, self._classifier, self._tag, deaths, settled
        )
        with crumb_of(self._store, task, self._mark) as crumb:
            for batch in batches:
                decisions = self._decisions(verdicts, batch)
                yield handled(batch, self._handler, self._result, decisions, crumb)

    @staticmethod
    def _decisions(verdicts: TaskVerdicts, batch: pa.RecordBatch) -> Decisions:
        if not batch.num_rows:
            return Undecided()
        return verdicts.over(batch.column(PLACE).to_pylist(), batch.column("delivery_count").to_pylist())

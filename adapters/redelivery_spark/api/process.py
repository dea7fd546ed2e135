"""`process`: a handler for each row. Rows that fail are redelivered and do not end the query. Runs in executors.

A batch can run more than once: after a failure of the query, and for each action in `foreachBatch`. The handler is
called again then, and the first decision on a row counts (`executors/verdict.py`). A refused row stays out. A row that
passed once and fails later raises its error: the query fails and runs the same batch again.
"""

from __future__ import annotations

from pickle import PicklingError
from typing import TYPE_CHECKING, cast

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from redelivery.classifier import Classifier, checked_errors
from redelivery.errors import ConfigurationError
from redelivery_spark.api.failure_text import brief
from redelivery_spark.api.handled_rows import handled
from redelivery_spark.api.user_functions import check_function
from redelivery_spark.api.verdict_names import mark_of
from redelivery_spark.api.wal_location import handlers_of, marked, wal_dir_of
from redelivery_spark.executors.crumbs import Crumb, crumb_of, died_over
from redelivery_spark.executors.task_identity import this_task
from redelivery_spark.executors.verdict import TaskVerdicts, Undecided
from redelivery_spark.schema import PLACE
from redelivery_spark.wal.places import tag_of
from redelivery_spark.wal.records import Records
from redelivery_spark.wal.store import store_at
from redelivery_spark.wal.wal_state import settled_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, Row

    from redelivery_spark.api.handled_rows import Decisions

    Handler = Callable[[Row], object]

__all__ = ["process"]


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

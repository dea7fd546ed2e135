"""`process`: a handler for each row, whose failures are redelivered, and never end the query. Runs in executors.

A batch can run more than once: after a failure of the query, and for each action in `foreachBatch`. The handler is
called again then, and the first decision on a row counts (`executors/verdict.py`): a row that was refused stays out; a
row that has passed once, and fails later, raises its error, so that the query fails and runs the same batch again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from redelivery.classifier import Classifier, checked_errors
from redelivery.errors import ConfigurationError
from redelivery_spark.api.handled_rows import handled
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
    """Return what `handler(row)` makes of each row of a source; a row whose handler raises is redelivered.

    Such a row is not in the result. It is redelivered in a later batch, after its policy's delay, until its
    redeliveries are used up; then it is dead-lettered with the exception as its cause. `Poison`, `Discard` and `Defer`
    steer as in any handler.

    With each run of a batch the handler is called again: a row that was refused stays out, and one that has passed may
    not fail later, or the query does. A row over which the process dies twice is refused: of a crash, of a
    `SystemExit`, of a stop of the query in the middle of it. Rows with one `_place` (after `union`, `explode`) are one
    message: if one fails, all are left out. Rows that a `limit` does not ask for are not handled, and count as
    processed. Call it before a join of streams, or another operator with a state: what that holds back for a later
    batch ends the query.

    Args:
        df: a streaming DataFrame of the source `redelivery`, or what `foreachBatch` got of it, with at least the
            columns `_place` and `delivery_count`.
        handler: called with a `Row` in an executor: `properties` is a dict, a timestamp is an aware datetime in UTC.
            Returns a tuple, dict or Row for `result`, or None for no row.
        result: the columns that the handler returns, as DDL or StructType; None: rows that pass, as they are. A value
            that does not fit its column fails its row. A datetime without a time zone is taken as UTC.
        name: what this handler is known by in the log, the same at each start. By default its qualified name and the
            plain values that it was made with: give one where those change from start to start, or where two handlers
            of the same rows differ in neither.
        wal_dir: the source's `walDir`; by default what the DataFrame says.
        errors: a `redelivery.Classifier`; its policies are not supported here.

    Raises:
        ConfigurationError: an argument cannot be honoured.
    """
    classifier = _checked(df, errors)
    folder = wal_dir_of(df, wal_dir, "process")
    columns = df.schema if result is None else _parsed(result)
    before = handlers_of(df)
    mark = mark_of(handler, name, columns.simpleString(), before)
    schema = marked(columns, folder, [*before, mark])
    arrow = None if result is None else to_arrow_schema(schema, timezone="UTC")
    return df.mapInArrow(_Task(handler, arrow, folder, mark, classifier), schema)


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
            "errors=: retry(policy=…) is not supported here; give the destination a policy", option="errors"
        )
    return classifier


def _parsed(result: str | StructType) -> StructType:
    if isinstance(result, StructType):
        return result
    try:
        return cast("StructType", StructType.fromDDL(result))
    except Exception as error:  # noqa: BLE001 - Spark's are of many kinds
        raise ConfigurationError(
            f"result={result!r} is no schema: {str(error).splitlines()[0]}", option="result"
        ) from None


class _Task:
    """What a task runs: over each Arrow batch of its partition, with a verdict for each."""

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

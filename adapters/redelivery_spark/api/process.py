"""`process`: a handler for each row, whose failures are redelivered, and never end the query. Runs in executors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Row
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from redelivery.classifier import Classifier, checked_errors
from redelivery.errors import ConfigurationError, RedeliveryError
from redelivery_spark.api.result_columns import result_batch
from redelivery_spark.api.verdict_names import mark_of, rows_mark
from redelivery_spark.api.wal_location import handlers_of, marked, wal_dir_of
from redelivery_spark.wal.records import Records, Refusal
from redelivery_spark.wal.store import store_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pyspark.sql import DataFrame

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

    Such a row is not in the result. It comes again in a later batch, after its policy's delay, until its redeliveries
    are used up; then it is dead-lettered with the exception as its cause. `Poison`, `Discard` and `Defer` steer as in
    any handler.

    Args:
        df: a streaming DataFrame of the source `redelivery`, or what `foreachBatch` got of it, with at least the
            columns `message_id` and `delivery_count`.
        handler: called with a `Row` in an executor. Returns a tuple, dict or Row for `result`, or None for no row.
        result: the columns that the handler returns, as DDL or StructType; None: rows that pass, as they are. A value
            that does not fit its column fails its row.
        name: what this handler is known by in the log, the same at each start. By default its qualified name and the
            plain values that it was made with: give one where those change from start to start, or where two handlers
            of the same rows differ in neither.
        wal_dir: the source's `walDir`; by default what the DataFrame says.
        errors: a `redelivery.Classifier`; its policies are not supported here.

    Raises:
        ConfigurationError: an argument cannot be honoured.
    """
    missing = {"message_id", "delivery_count"} - set(df.columns)
    if missing:
        raise ConfigurationError(
            f"process: the DataFrame has no column {', '.join(sorted(missing))}", option="df"
        )
    classifier = checked_errors(errors) or Classifier()
    if classifier.policies:
        raise ConfigurationError(
            "errors=: retry(policy=…) is not supported here; give the destination a policy", option="errors"
        )
    folder = wal_dir_of(df, wal_dir, "process")
    columns = df.schema if result is None else _parsed(result)
    before = handlers_of(df)
    mark = mark_of(handler, name, columns.simpleString(), before)
    schema = marked(columns, folder, [*before, mark])
    arrow = to_arrow_schema(schema)
    task = _Task(handler, arrow if result is not None else None, Records(store_at(folder)), mark, classifier)
    return df.mapInArrow(task, schema)


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
    """What a task runs: over all rows of its partition, then one verdict for them."""

    def __init__(
        self, handler: Handler, result: pa.Schema | None, records: Records, mark: str, classifier: Classifier
    ) -> None:
        self._handler = handler
        self._result = result
        self._records = records
        self._mark = mark
        self._classifier = classifier

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        place = _place()
        if place is None:
            yield from self._judged(batches, _Verdict(self._classifier, None, follow=False))
            return
        # Which verdict theirs is, is told by all rows together.
        held = list(batches)
        ids = [each for batch in held for each in batch.column("message_id").to_pylist()]
        if not ids:
            return
        name = f"{place}-{self._mark}-{rows_mark(ids)}"
        verdict = _Verdict(self._classifier, self._records.verdict(name), follow=True)
        yield from self._judged(held, verdict)
        if verdict.before is None:
            refused = verdict.refused
            if self._records.judge(name, refused).keys() != refused.keys():
                raise RedeliveryError(
                    "another attempt of this task has decided otherwise on its rows: try again"
                )

    def _judged(self, batches: Iterable[pa.RecordBatch], verdict: _Verdict) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            names = batch.schema.names
            make = Row(*names)
            ids: list[Any] = batch.column("message_id").to_pylist()
            counts: list[Any] = batch.column("delivery_count").to_pylist()
            passed: list[int] = []
            made: list[object] = []
            rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
            for number, values in enumerate(rows):
                if verdict.refuses(ids[number]):
                    continue
                try:
                    value = self._handler(make(*values))
                except Exception as error:  # noqa: BLE001 - whatever the user's code raises
                    verdict.refuse(ids[number], counts[number], error)
                else:
                    passed.append(number)
                    made.append(value)
            if self._result is None:
                yield batch.take(pa.array(passed, pa.int64())) if len(passed) < batch.num_rows else batch
            else:
                whose = [(ids[number], counts[number]) for number in passed]
                yield _columns(made, whose, self._result, verdict)


def _place() -> str | None:
    """Return the batch and the partition that this is, or None outside of a streaming query."""
    context = TaskContext.get()
    batch = None if context is None else context.getLocalProperty("streaming.sql.batchId")
    if context is None or batch is None:
        return None
    return f"{int(batch):012d}-{context.partitionId():06d}"


class _Verdict:
    """What becomes of the rows of one partition. `before`: what an earlier attempt of its task has decided."""

    def __init__(self, classifier: Classifier, before: Mapping[str, Refusal] | None, *, follow: bool) -> None:
        self._classifier = classifier
        self._follow = follow
        self.before = before
        self.refused: dict[str, Refusal] = {}

    def refuses(self, message_id: str) -> bool:
        """Whether the row has been refused before."""
        return self.before is not None and message_id in self.before

    def refuse(self, message_id: str, count: int, error: Exception) -> None:
        """Have a row redelivered. Raises the error where nobody would."""
        if not self._follow or self.before is not None:
            # Nobody would redeliver it; or another attempt has called it good.
            raise error
        kind, cause, delay = self._classifier.verdict(error)
        self.refused[message_id] = Refusal(count, kind, cause.text, delay)


def _columns(
    made: list[object], whose: list[tuple[str, int]], schema: pa.Schema, verdict: _Verdict
) -> pa.RecordBatch:
    """Return what the handler has returned as columns, without the rows whose values do not fit."""
    rows = list(zip(whose, made, strict=True))
    rows = [row for row in rows if row[1] is not None]
    try:
        return result_batch([each for _, each in rows], schema)
    except Exception:  # noqa: BLE001 - Arrow's are of many kinds, and the values are the user's
        good: list[object] = []
        for (message_id, count), each in rows:
            try:
                result_batch([each], schema)
            except Exception as error:  # noqa: BLE001
                verdict.refuse(message_id, count, error)
            else:
                good.append(each)
        return result_batch(good, schema)

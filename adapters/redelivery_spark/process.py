"""`process`: a handler for each row, whose failures are redelivered, and never end the query. Runs in executors."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Row
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from redelivery.classifier import Classifier, checked_errors
from redelivery.core.delivery import Cause
from redelivery.core.events import Deferred, Discarded, Poisoned
from redelivery.errors import ConfigurationError, RedeliveryError
from redelivery_spark.log.records import Records, Refusal
from redelivery_spark.log.store import store_at
from redelivery_spark.places import marked, wal_dir_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import DataFrame

    Handler = Callable[[Row], object]

__all__ = ["process"]


def process(
    df: DataFrame,
    handler: Handler,
    result: str | StructType | None = None,
    *,
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
        result: the columns that the handler returns, as DDL or StructType; None: rows that pass, as they are.
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
    schema = marked(df.schema if result is None else _parsed(result), folder)
    task = _Task(handler, None if result is None else schema, to_arrow_schema(schema), folder, classifier)
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
        self,
        handler: Handler,
        result: StructType | None,
        schema: pa.Schema,
        wal_dir: str,
        classifier: Classifier,
    ) -> None:
        self._handler = handler
        self._result = result
        self._schema = schema
        self._wal_dir = wal_dir
        self._classifier = classifier

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        name = self._name()
        records = Records(store_at(self._wal_dir))
        before = None if name is None else records.verdict(name)
        refused: dict[str, Refusal] = {}
        for batch in batches:
            made = self._batch(batch, before, refused, follow=name is not None)
            if made is not None:
                yield made
        if name is not None and before is None and records.judge(name, refused).keys() != refused.keys():
            raise RedeliveryError("another attempt of this task has decided otherwise on its rows: try again")

    def _name(self) -> str | None:
        """Return what the verdict on this partition is called, or None outside of a streaming query."""
        context = TaskContext.get()
        batch = None if context is None else context.getLocalProperty("streaming.sql.batchId")
        if context is None or batch is None:
            return None
        handler = getattr(self._handler, "__qualname__", type(self._handler).__name__)
        mark = zlib.crc32(f"{handler} {self._schema}".encode())
        return f"{int(batch):012d}-{context.partitionId():06d}-{mark:08x}"

    def _batch(
        self,
        batch: pa.RecordBatch,
        before: Mapping[str, Refusal] | None,
        refused: dict[str, Refusal],
        *,
        follow: bool,
    ) -> pa.RecordBatch | None:
        names = batch.schema.names
        make = Row(*names)
        ids: list[Any] = batch.column("message_id").to_pylist()
        counts: list[Any] = batch.column("delivery_count").to_pylist()
        passed: list[int] = []
        made: list[object] = []
        for number, values in enumerate(zip(*(column.to_pylist() for column in batch.columns), strict=True)):
            if before is not None and ids[number] in before:
                continue
            try:
                value = self._handler(make(*values))
            except Exception as error:
                if not follow or before is not None:
                    raise  # nobody would redeliver it; or another attempt has called it good
                refused[ids[number]] = self._refusal(counts[number], error)
            else:
                passed.append(number)
                made.append(value)
        if self._result is None:
            return batch.take(pa.array(passed, pa.int64())) if len(passed) < batch.num_rows else batch
        return self._columns([each for each in made if each is not None])

    def _refusal(self, count: int, error: Exception) -> Refusal:
        event = self._classifier.event_for(None, error)  # type: ignore[arg-type]  # only its kind is of interest
        match event:
            case Poisoned():
                return Refusal(count, "poison", event.cause.text)
            case Discarded():
                return Refusal(count, "discard", event.cause.text)
            case Deferred():
                return Refusal(count, "defer", event.cause.text, event.delay)
            case _:
                return Refusal(count, "fail", Cause.of(error).text)

    def _columns(self, made: list[object]) -> pa.RecordBatch:
        """Return what the handler has returned as columns."""
        assert self._result is not None
        names = self._result.names
        rows = [_values(each, names) for each in made]
        columns = zip(*rows, strict=True) if rows else ([] for _ in names)
        arrays = [pa.array(list(c), f.type) for c, f in zip(columns, self._schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _values(made: object, names: list[str]) -> tuple[Any, ...]:
    if isinstance(made, dict):
        return tuple(made.get(name) for name in names)
    if isinstance(made, tuple | list) and len(made) == len(names):
        return tuple(made)
    if len(names) == 1 and not isinstance(made, tuple | list):
        return (made,)
    raise RedeliveryError(
        f"the handler returned {type(made).__name__}, which does not fit the {len(names)} columns of result="
    )

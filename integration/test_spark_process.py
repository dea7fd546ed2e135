"""`process` under Spark, over files instead of a broker: columns, verdicts, processes that die, several actions."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from integration.need import need_spark

need_spark()

from pyspark.errors import StreamingQueryException
from pyspark.sql.pandas.types import from_arrow_schema

from redelivery_spark import foreach_batch, process, run
from redelivery_spark.api.wal_location import marked
from redelivery_spark.schema import stream_schema
from redelivery_spark.wal.places import place, tag_of
from redelivery_spark.wal.records import DIED, Records, Refusal
from redelivery_spark.wal.store import store_at

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [
    pytest.mark.ci("Spark: a session of 20 s"),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]
COLUMNS = stream_schema(text=False, error=False)
SENT = datetime(2026, 1, 2, 3, 4, 5, 678000, UTC)


class Rows:
    """A stream of the source's columns, read from files, and the log of its verdicts."""

    def __init__(self, spark: SparkSession, folder: Path, count: int, files: int = 1) -> None:
        self._spark = spark
        self._folder = folder
        self.wal = str(folder / "wal")
        store_at(self.wal).prepare("verdicts", "failures")
        for file in range(files):
            begin, end = count * file // files, count * (file + 1) // files
            made = [self._row(number) for number in range(begin, end)]
            frame = spark.createDataFrame(made, from_arrow_schema(COLUMNS))
            frame.coalesce(1).write.mode("append").parquet(str(folder / "in"))

    def _row(self, number: int) -> dict[str, Any]:
        values = {
            "message_id": f"m{number}", "destination": "queue://q", "body": b"%d" % number,
            "properties": {"n": str(number)}, "timestamp": SENT, "delivered_at": SENT, "redelivered": False,
            "delivery_count": 1, "_place": place(1, tag_of(self.wal), 1 + number // 5000, number % 5000),
        }  # fmt: skip
        return {name: values.get(name) for name in COLUMNS.names}

    @property
    def stream(self) -> DataFrame:
        """Return the stream, whose columns carry the log's location."""
        schema = marked(from_arrow_schema(COLUMNS), self.wal)
        read = self._spark.readStream.schema(schema).option("maxFilesPerTrigger", 100)
        return read.parquet(str(self._folder / "in"))

    def start(self, write: Callable[[DataFrame, int], object]) -> StreamingQuery:
        """Start a query over all of it, as one batch."""
        return (
            self.stream.writeStream.foreachBatch(foreach_batch(write, wal_dir=self.wal))
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )

    @property
    def refused(self) -> dict[str, Refusal]:
        """Return the refusals, by message id."""
        _, found = Records(store_at(self.wal)).settled_by({}, {1: 99})
        return {f"m{(at >> 13) % 8 * 5000 - 5000 + at % 8192}": refusal for at, refusal in found.items()}


def ids(df: DataFrame) -> list[str]:
    """Return the ids of rows, in order."""
    return sorted(row["message_id"] for row in df.collect())


def check(row: Row) -> object:
    """Refuse m1; check that values have the documented types."""
    if row["message_id"] == "m1":
        raise ValueError("m1")
    assert row["properties"] == {"n": row["message_id"][1:]}
    assert row["timestamp"] == SENT
    assert row["timestamp"].tzinfo is not None
    return row


def typed(row: Row) -> object:
    """Return columns of other types; one value does not fit."""
    return ("x" if row["message_id"] == "m2" else int(row["message_id"][1:]), row["timestamp"])


def test_columns_of_the_source_and_others(spark_abroad: SparkSession, tmp_path: Path) -> None:
    """Rows pass unchanged, or as `result=` says, with timestamps; failed rows are refused, and the query ends well."""
    rows, seen = Rows(spark_abroad, tmp_path, 4), dict[str, Any]()

    def write(df: DataFrame, _: int) -> None:
        passed = process(df, check)
        seen["same"] = passed.drop("_place", "body").where("message_id = 'm0'").collect()[0].asDict()
        seen["ids"] = ids(passed)
        made = process(passed, typed, "id long, ts timestamp")
        seen["made"] = [(row["id"], row["ts"].astimezone(UTC)) for row in made.orderBy("id").collect()]
        seen["times"] = [row["t"] for row in made.selectExpr("cast(ts as string) t").collect()]

    rows.start(write).awaitTermination()
    assert seen["ids"] == ["m0", "m2", "m3"]
    assert seen["same"]["properties"] == {"n": "0"}
    assert seen["made"] == [(0, SENT), (3, SENT)]
    assert seen["times"] == ["2026-01-01 22:04:05.678"] * 2
    assert {name: each.cause.partition(":")[0] for name, each in rows.refused.items()} == {
        "m1": "ValueError", "m2": "RedeliveryError",
    }  # fmt: skip


def dies(row: Row) -> object:
    """End the worker's process over m7."""
    if row["message_id"] == "m7":
        os._exit(9)
    return row


def test_a_message_that_kills_its_process(spark_abroad: SparkSession, tmp_path: Path) -> None:
    """Two deaths identify the message; the third start passes all others, with the same batch."""
    rows, written = Rows(spark_abroad, tmp_path, 1000, files=2), dict[int, list[str]]()
    starts: list[StreamingQuery] = []

    def write(df: DataFrame, batch: int) -> None:
        written[batch] = ids(process(df, dies))

    def start() -> StreamingQuery:
        starts.append(rows.start(write))
        return starts[-1]

    run(start, max_restarts=4, wal_dir=rows.wal)
    assert len(starts) == 3
    assert written == {0: sorted(f"m{each}" for each in range(1000) if each != 7)}
    assert {name: each.kind for name, each in rows.refused.items()} == {"m7": DIED}
    assert len(Records(store_at(rows.wal)).failures()) == 2


def test_actions_that_want_few_rows(spark_abroad: SparkSession, tmp_path: Path) -> None:
    """Actions for which Spark ends tasks early refuse no row, and the next action has all rows."""
    rows, counts = Rows(spark_abroad, tmp_path, 20_010), list[int]()

    def write(df: DataFrame, _: int) -> None:
        passed = process(df, check)
        for _ in range(3):
            assert len(passed.head(1)) == 1
        assert passed.limit(5).count() == 5
        assert not passed.isEmpty()
        counts.append(passed.count())

    rows.start(write).awaitTermination()
    assert counts == [20_009]
    assert set(rows.refused) == {"m1"}


def test_rows_of_one_message(spark_abroad: SparkSession, tmp_path: Path) -> None:
    """All rows of a message that fails are left out, over a union of a frame with itself and a repartition."""
    rows, found = Rows(spark_abroad, tmp_path, 40, files=2), list[list[str]]()

    def write(df: DataFrame, _: int) -> None:
        found.append(ids(process(df.union(df), check)))
        found.append(ids(process(process(df, check, name="a").repartition(3), check, name="b")))

    rows.start(write).awaitTermination()
    good = [f"m{each}" for each in range(40) if each != 1]
    assert found == [sorted(good * 2), sorted(good)]
    assert set(rows.refused) == {"m1"}


def test_rows_of_another_log(spark_abroad: SparkSession, tmp_path: Path) -> None:
    """Rows of another log end the query with one sentence, and `run` does not start it again."""
    (tmp_path / "a").mkdir()
    rows = Rows(spark_abroad, tmp_path / "a", 4)

    def write(df: DataFrame, _: int) -> None:
        process(df, check, wal_dir=str(tmp_path)).count()

    with pytest.raises(
        StreamingQueryException, match=r"ConfigurationError: process: a row is not of the log"
    ):
        run(lambda: rows.start(write))

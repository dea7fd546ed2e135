"""Spark's recipes for each row once, over this source: the documented promise of each sink, on a real broker.

Batches run again because a second sink fails, because rows fail, and because processes die over rows.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.matrix import cover
from tests.tiers import chosen

from integration.need import need_spark

need_spark()

from pyspark.errors import PySparkException
from pyspark.sql import functions as sf

import redelivery_spark
from integration.spark_recipe import MESSAGES, POLICY, Recipe
from integration.spark_sinks import FailingSink, found, note, replays, sink
from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from integration.conftest import Session

FEW = MESSAGES if chosen() == "full" else 60  # to be split until one is left
RESULT = "message_id string, body string, count int"
pytestmark = [
    pytest.mark.full("Spark: each sink and each failure"),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]


@pytest.fixture
def recipe(spark: SparkSession, session: Session, unique_queue: str, tmp_path: Path) -> Recipe:
    """A recipe on Artemis."""
    return Recipe(spark, session.broker("artemis"), unique_queue, tmp_path)


def handle(row: Row) -> tuple[str, str, int]:
    """Do what the beginning of the body asks for."""
    body = bytes(row.body).decode()
    kind = body.partition("-")[0]
    if kind == "bad" or (kind == "once" and row.delivery_count == 1):
        raise ValueError(f"negative amount in {body}")
    return row.message_id, body, row.delivery_count


class Dying:
    """Handler that ends its process over one message always, and over another one the first time."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def __call__(self, row: Row) -> tuple[str, str, int]:
        """Handle a row, or die."""
        body = bytes(row.body).decode()
        flag = Path(self._folder, body)
        if body.startswith("killer") or (body.startswith("flaky") and not flag.exists()):
            flag.touch()
            os._exit(9)
        return handle(row)


@pytest.mark.parametrize(("kind", "times"), cover(["ids", "table", "once"], [1, 2, 5]))
def test_a_second_sink_fails(recipe: Recipe, kind: str, times: int) -> None:
    """A sink keyed by batch id has each row once: a batch that runs again is the same batch."""
    sent, failing = recipe.fill({}), FailingSink(recipe.folder / "failed", times)
    df = recipe.load()

    def write(rows: DataFrame, batch: int) -> None:
        bodies = rows.selectExpr("message_id", "cast(body as string) body").persist()
        note(recipe.folder, batch, [row.body for row in bodies.collect()])
        sink(kind, recipe.out)(bodies, batch)
        failing(batch)

    recipe.run(df, write)
    assert found(kind, recipe.out) == Counter(sent)
    assert replays(recipe.folder) == (1, 0)
    assert len(recipe.queries) == times + 1


@pytest.mark.parametrize(("kind", "times"), cover(["once", "ids", "table"], [1, 2, 5]))
def test_a_second_sink_fails_and_rows_fail(recipe: Recipe, session: Session, kind: str, times: int) -> None:
    """The same holds with `process`: rows that fail are in later batches, once, or dead letters."""
    kinds = dict.fromkeys(range(50, MESSAGES, 100), "once") | {3: "bad", 700: "bad"}
    sent, failing = recipe.fill(kinds), FailingSink(recipe.folder / "failed", times)
    df = redelivery_spark.process(recipe.load(), handle, RESULT)

    def write(rows: DataFrame, batch: int) -> None:
        kept = rows.persist()
        note(recipe.folder, batch, [row.body for row in kept.collect()])
        sink(kind, recipe.out)(kept, batch)
        failing(batch)

    recipe.run(df, write)
    assert found(kind, recipe.out) == Counter(body for body in sent if not body.startswith("bad"))
    assert replays(recipe.folder) == (1, 0)
    bad = [body for body in sent if body.startswith("bad")]
    assert recipe.letters(session, len(bad)) == {
        body: (3, f"ValueError: negative amount in {body}") for body in bad
    }


@pytest.mark.parametrize("kind", ["ids", "once"])
def test_messages_that_kill_their_process(recipe: Recipe, session: Session, kind: str) -> None:
    """Killers are dead-lettered with that cause, all others are in the output once, and no batch is emptied."""
    sent = recipe.fill({333: "killer", 444: "bad", 555: "flaky"})
    counts: dict[str, int] = {}
    df = redelivery_spark.process(recipe.load(), Dying(str(recipe.folder)), RESULT)

    def write(rows: DataFrame, batch: int) -> None:
        kept = rows.persist().collect()
        counts.update((row.body, row["count"]) for row in kept)
        note(recipe.folder, batch, [row.body for row in kept])
        sink(kind, recipe.out)(rows, batch)

    recipe.run(df, write)
    assert found(kind, recipe.out) == Counter(body for body in sent if not body.startswith(("killer", "bad")))
    assert counts["flaky-555"] in (1, 2)
    letters = recipe.letters(session, 2)
    assert {body: count for body, (count, _) in letters.items()} == {"killer-333": 3, "bad-444": 3}
    assert letters["bad-444"][1] == "ValueError: negative amount in bad-444"
    assert "process died" in letters["killer-333"][1]
    assert replays(recipe.folder)[1] == 0
    print(f"\n{len(recipe.queries)} starts")


def test_windows_by_the_time_of_delivery(recipe: Recipe, session: Session) -> None:
    """With a watermark on `delivered_at` a row that is redelivered after 8 s is in a window of its own time.

    By `timestamp`, the producer's, it would be late, and Spark would silently drop it.
    """
    kinds = dict.fromkeys(range(0, 1000, 100), "once") | {500: "bad"}
    slow = {name: 8000 if name.endswith("Delay") else value for name, value in POLICY.items()}
    sent = recipe.fill(kinds)
    passed = redelivery_spark.process(
        recipe.load(policy={**slow, "jms__redeliveryPolicy__maximumRedeliveries": 1}),
        handle_time,
        "body string, at timestamp",
    )
    counted = (
        passed.withWatermark("at", "2 seconds")
        .groupBy(sf.window("at", "1 second"))
        .count()
        .selectExpr("window.start at", "count")
    )
    windows: dict[object, int] = {}

    def write(rows: DataFrame, _: int) -> None:
        windows.update((row["at"], row["count"]) for row in rows.collect())

    def start() -> StreamingQuery:
        writer = counted.writeStream.outputMode("update").foreachBatch(write)
        writer = writer.option("checkpointLocation", str(recipe.folder / "checkpoint"))
        return writer.trigger(availableNow=True).start()

    redelivery_spark.run(start, max_restarts=0)
    letters = recipe.letters(session)
    assert set(letters) == {"bad-500"}
    assert sum(windows.values()) == len(sent) - len(letters)
    assert len(windows) >= 2


def handle_time(row: Row) -> tuple[str, object]:
    """Return the result of `handle`, and the time of this delivery."""
    return handle(row)[1], row.delivered_at


def test_a_schema_of_two_columns(recipe: Recipe) -> None:
    """A schema of two columns gives these two; `process` needs two more, and its error says so."""
    sent = recipe.fill({})
    df = recipe.load("message_id string, body binary")
    assert df.columns == ["message_id", "body"]
    with pytest.raises(ConfigurationError, match="no column _place and no column delivery_count"):
        redelivery_spark.process(df, handle, RESULT, wal_dir=recipe.wal)
    rows: list[Row] = []
    recipe.run(df, lambda batch, _: rows.extend(batch.collect()))
    assert Counter(bytes(row.body).decode() for row in rows) == Counter(sent)
    assert all(row.message_id for row in rows)


def test_a_schema_that_process_can_work_with(recipe: Recipe, session: Session) -> None:
    """A schema of four columns, and the walDir by name, are enough for `process`."""
    sent = recipe.fill({5: "once", 7: "bad"})
    df = recipe.load("message_id string, body binary, delivery_count int, _place long")
    made = redelivery_spark.process(df, handle, RESULT, wal_dir=recipe.wal)
    recipe.run(made, sink("ids", recipe.out))
    assert found("ids", recipe.out) == Counter(body for body in sent if body != "bad-7")
    assert set(recipe.letters(session)) == {"bad-7"}


def fatal(body: bytes) -> str:
    """End the worker's process over one message."""
    if bytes(body).startswith(b"killer"):
        os._exit(9)
    return bytes(body).decode()


def decoded_fatally() -> Column:
    """Return the column of a UDF: Spark cannot read the annotations of `fatal`."""
    unannotated = sf.udf(lambda body: fatal(body), "string")  # noqa: PLW0108 - that is what it is for
    return unannotated("body").alias("body")


def test_a_killer_outside_of_process(recipe: Recipe, session: Session) -> None:
    """`isolate=split` identifies the killer; all others are once in a sink that is keyed by message_id.

    No other message arrives that would rule out the sink: the killer is deferred as often as allowed, and then poison.
    """
    sent = recipe.fill({33: "killer"}, FEW)
    policy = POLICY | {"redelivery__maximumDeferrals": 2}
    df = recipe.load(policy=policy, isolate="split", isolateAfter="2")
    made = df.select("message_id", decoded_fatally())
    out = Path(recipe.out)
    out.mkdir()

    def write(rows: DataFrame, _: int) -> None:
        for row in rows.collect():
            (out / hashlib.sha256(row.message_id.encode()).hexdigest()).write_text(row.body, encoding="utf-8")

    recipe.run(made, write, times=60)
    assert Counter(path.read_text(encoding="utf-8") for path in out.iterdir()) == Counter(
        set(sent) - {"killer-33"}
    )
    letters = recipe.letters(session)
    assert set(letters) == {"killer-33"}
    print(f"\n{len(recipe.queries)} starts; {letters}")


def test_the_same_with_sparks_own_sink(recipe: Recipe, session: Session) -> None:
    """`run` marks the failures that Spark's own sink cannot. Each start finds a message that passes."""
    sent = recipe.fill({33: "killer"}, FEW)
    made = recipe.load(isolate="split", isolateAfter="2").select("message_id", decoded_fatally())

    def start() -> StreamingQuery:
        sent.extend(recipe.fill({}, 1, first=len(sent)))
        writer = made.writeStream.format("parquet").option("path", recipe.out)
        writer = writer.option("checkpointLocation", str(recipe.folder / "checkpoint"))
        recipe.queries.append(writer.trigger(availableNow=True).start())
        return recipe.queries[-1]

    redelivery_spark.run(start, max_restarts=60, wal_dir=recipe.wal)
    assert found("files", recipe.out) == Counter(set(sent) - {"killer-33"})
    assert set(recipe.letters(session)) == {"killer-33"}


def test_process_over_two_columns_is_refused_by_spark_too(recipe: Recipe) -> None:
    """A column that the source does not have is refused in one sentence at the start."""
    recipe.fill({}, 1)
    with pytest.raises(PySparkException, match="colour"):
        recipe.run(recipe.load("message_id string, colour string"), lambda *_: None, times=0)

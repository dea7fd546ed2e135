"""Spark's batch side on real brokers: writing, browsing, draining; refusals, columns, and repeated writes."""

from __future__ import annotations

import runpy
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.tiers import amount

from integration.need import need_spark

need_spark()

from pyspark.errors import PySparkException
from pyspark.sql import functions as sf

import redelivery
import redelivery_spark
from integration.dead_letter_fill import CAUSES, fill
from integration.peers import PAIRS, take
from integration.spark_session import address, credentials, explained

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from integration.brokers import Broker
    from integration.conftest import Session

pytestmark = pytest.mark.ci("Spark: a session of 20 s")

MANY = [("artemis", "stomp"), ("artemis", "amqp"), ("rabbitmq", "stomp")]
SHOWS = {("activemq", "stomp"), ("activemq", "amqp"), ("artemis", "amqp"), ("brokerj", "amqp")}
TRIAGE = [("artemis", "amqp"), ("activemq", "stomp"), ("brokerj", "amqp")]
EXAMPLE = Path(__file__).parents[1] / "examples" / "spark_triage.py"
pairs = pytest.mark.parametrize("pair", PAIRS, ids="-".join)


@pytest.fixture
def options(session: Session, pair: tuple[str, str], tmp_path: Path) -> dict[str, str]:
    """Return the options for the pair's broker, with a file of credentials."""
    broker = session.broker(pair[0])
    return {"url": address(broker, pair[1]), "credentialsFile": credentials(broker, tmp_path)}


def numbered(spark: SparkSession, count: int) -> DataFrame:
    """Return rows of 1,000 bytes in two partitions, with a property and a correlation id."""
    number = sf.col("id").cast("string")
    return spark.range(0, count, numPartitions=2).select(
        sf.rpad(number, 1000, "x").cast("binary").alias("body"),
        sf.create_map(sf.lit("number"), number).alias("properties"),
        sf.concat(sf.lit("c"), sf.col("id") % 10).alias("correlation_id"),
    )


def numbers(df: DataFrame) -> list[int]:
    """Return the numbers of the rows, sorted."""
    return sorted(
        int(row.number) for row in df.select(sf.col("properties")["number"].alias("number")).collect()
    )


@pairs
def test_written_looked_at_and_drained(
    spark: SparkSession,
    session: Session,
    pair: tuple[str, str],
    options: dict[str, str],
    unique_queue: str,
    tmp_path: Path,
) -> None:
    """Each row is a message once; browsing shows all or refuses; two actions on one drain have the same rows."""
    count = amount("REDELIVERY_SPARK_ROWS", quick=1000, ci=10_000, full=50_000) if pair in MANY else 1000
    began = time.monotonic()
    numbered(spark, count).write.format("redelivery").options(**options).option(
        "destination", unique_queue
    ).mode("append").save()
    written = time.monotonic()
    looked = spark.read.format("redelivery").options(**options).option("destination", unique_queue).load()
    if pair not in SHOWS:
        with pytest.raises(PySparkException, match=r"cannot show a queue over this protocol .*mode=drain"):
            looked.count()
    elif pair[0] == "activemq":
        with pytest.raises(PySparkException, match="no more than 400"):
            looked.count()
        assert looked.sparkSession is spark
    else:
        assert numbers(looked) == list(range(count))
    seen = time.monotonic()
    drain = (
        spark.read.format("redelivery").options(**options)
        .options(destination=unique_queue, mode="drain", walDir=str(tmp_path / "wal"))
        .load()
    )  # fmt: skip
    assert drain.count() == count
    drained = time.monotonic()
    assert numbers(drain) == list(range(count))
    assert drain.filter(sf.length("body") == 1000).count() == count
    assert take(session.broker(pair[0]), pair[1], unique_queue, 1.0) is None
    print(
        f"\n{'-'.join(pair)}: {count} rows written in {written - began:.1f} s, looked at in {seen - written:.1f} s, "
        f"drained in {drained - seen:.1f} s"
    )


@pairs
def test_a_write_that_is_done_again(
    spark: SparkSession, pair: tuple[str, str], options: dict[str, str], unique_queue: str, tmp_path: Path
) -> None:
    """With one name for both runs Artemis drops the duplicates; elsewhere each is there twice, under one id."""
    for _ in range(2):
        numbered(spark, 100).write.format("redelivery").options(**options).options(
            destination=unique_queue, run="monday"
        ).mode("append").save()
    drain = (
        spark.read.format("redelivery").options(**options)
        .options(destination=unique_queue, mode="drain", walDir=str(tmp_path / "wal"))
        .load()
    )  # fmt: skip
    expected = list(range(100)) if pair[0] == "artemis" else sorted([*range(100), *range(100)])
    assert numbers(drain) == expected
    assert drain.select(sf.col("properties")["redeliveryId"]).distinct().count() == 100


@pytest.mark.parametrize(
    "pair", [("artemis", "stomp"), ("artemis", "amqp"), ("rabbitmq", "amqp")], ids="-".join
)
def test_a_stream_is_written(
    spark: SparkSession, pair: tuple[str, str], options: dict[str, str], unique_queue: str, tmp_path: Path
) -> None:
    """A batch that Spark writes again, because its commit was lost, is duplicated, unless the broker drops that."""
    numbered(spark, 500).write.parquet(str(tmp_path / "in"))
    checkpoint = tmp_path / "checkpoint"
    schema = spark.read.parquet(str(tmp_path / "in")).schema

    def run() -> None:
        stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
        writer = (
            stream.writeStream.format("redelivery").options(**options).option("destination", unique_queue)
        )
        writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        writer.start().awaitTermination(120)

    run()
    last = max(
        (path for path in (checkpoint / "commits").iterdir() if path.name.isdigit()),
        key=lambda p: int(p.name),
    )
    last.unlink()
    (checkpoint / "commits" / f".{last.name}.crc").unlink(missing_ok=True)
    run()
    drain = (
        spark.read.format("redelivery").options(**options)
        .options(destination=unique_queue, mode="drain", walDir=str(tmp_path / "wal"))
        .load()
    )  # fmt: skip
    found = numbers(drain)
    assert sorted(set(found)) == list(range(500))
    assert len(found) == (500 if pair[0] == "artemis" else 750)


@pytest.mark.parametrize("pair", [("artemis", "amqp")], ids="-".join)
def test_a_query_asks_for_columns(
    spark: SparkSession, options: dict[str, str], unique_queue: str, tmp_path: Path
) -> None:
    """A browse and a drain have the columns of `.schema(…)` only; two filters over one DataFrame find their rows."""
    numbered(spark, 100).write.format("redelivery").options(**options).option(
        "destination", unique_queue
    ).mode("append").save()
    ways = ({"mode": "browse"}, {"mode": "drain", "walDir": str(tmp_path / "wal")})
    for way in ways:
        reading = (
            spark.read.format("redelivery").options(**options, **way).option("destination", unique_queue)
        )
        df = reading.schema("properties map<string,string>, correlation_id string").load()
        assert df.columns == ["properties", "correlation_id"]
        both = df.filter("correlation_id = 'c3'").union(df.filter("correlation_id = 'c4'"))
        assert numbers(both) == sorted([*range(3, 100, 10), *range(4, 100, 10)])
        with pytest.raises(PySparkException, match="column body string: its type is binary"):
            reading.schema("body string").load().count()


@pytest.mark.parametrize("pair", [("artemis", "stomp"), ("rabbitmq", "stomp")], ids="-".join)
def test_what_the_broker_refuses_fails_the_write(
    spark: SparkSession,
    session: Session,
    pair: tuple[str, str],
    options: dict[str, str],
    tmp_path: Path,
    unique_queue: str,
) -> None:
    """A refused message, a refused log-in, and wrong columns, without any broker, fail the write with one sentence."""

    def save(df: DataFrame, **more: str) -> str:
        with pytest.raises(PySparkException) as caught:
            df.write.format("redelivery").options(**(options | more)).mode("append").save()
        return str(caught.value)

    rows = numbered(spark, 3)
    said = save(rows.withColumn("bdy", sf.lit(1)), destination=unique_queue)
    assert "column bdy: unknown; did you mean 'body'" in said
    wrong = tmp_path / "wrong.toml"
    wrong.write_text('user = "nobody"\npassword = "hush-hush"\n', encoding="utf-8")
    said = save(rows, destination=unique_queue, credentialsFile=str(wrong))
    assert "AdapterError" in said
    assert "hush-hush" not in said
    if pair[0] == "rabbitmq":
        said = save(rows, destination="native:///exchange/there-is-none/x")
        assert "AdapterError" in said
        assert "there-is-none" in said


@pytest.mark.parametrize("pair", [("artemis", "amqp")], ids="-".join)
def test_no_plan_shows_credentials(
    spark: SparkSession,
    session: Session,
    options: dict[str, str],
    unique_queue: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Credentials are neither in `explain(True)` of a browse, a drain and a stream, nor in the refusal of their url."""
    broker: Broker = session.broker("artemis")
    secret = "hush-hush"
    file = tmp_path / "secret.toml"
    file.write_text(f'user = "app"\npassword = "{secret}"\n', encoding="utf-8")
    told = {"url": options["url"], "credentialsFile": str(file), "destination": unique_queue}
    look = spark.read.format("redelivery").options(**told).load()
    drain = spark.read.format("redelivery").options(**told, mode="drain", walDir=str(tmp_path / "wal")).load()
    inside = f"amqp://app:{secret}@{broker.host}:{broker.ports['amqp']}"
    stream = (
        spark.readStream.format("redelivery")
        .options(url=inside, destination=unique_queue, walDir=str(tmp_path / "log"))
        .load()
    )  # fmt: skip
    for df in (look, drain, stream, look.join(drain, "message_id")):
        assert "redelivery" in explained(df).lower()
        assert secret not in explained(df)
        assert secret not in str(df._jdf.queryExecution().toString())
    with pytest.raises(PySparkException, match="url: it has credentials") as caught:
        spark.read.format("redelivery").options(url=inside, destination=unique_queue).load()
    assert secret not in str(caught.value)
    with pytest.raises(PySparkException, match="url: it has credentials") as caught:
        numbered(spark, 1).write.format("redelivery").options(url=inside, destination=unique_queue).mode(
            "append"
        ).save()
    assert secret not in str(caught.value)


def test_triage(
    spark: SparkSession,
    session: Session,
    new_queue: Callable[[], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The example counts the dead letters of several brokers, stores them, and redrives those of one cause."""
    urls: list[str] = []
    queues: dict[str, str] = {}
    for pair in TRIAGE:
        broker, queue = session.broker(pair[0]), new_queue()
        more = {"redelivery__deadLetterDestination": f"{queue}.dead"}
        urls.append(address(broker, pair[1], **more))
        queues[urls[-1]] = queue
        fill(broker, pair[1], f"{queue}.dead", queue, 2 * len(CAUSES))
    login = credentials(session.broker(TRIAGE[0][0]), tmp_path)
    out = tmp_path / "dead"
    line = ["triage", "--url", *urls, "--credentials", login, "--out", str(out), "--redrive", "TimeoutError"]
    monkeypatch.setattr(sys, "argv", line)
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    printed = capsys.readouterr().out.splitlines()
    kinds = sorted(CAUSES)
    expected = [f"2 {url} queue://{queues[url]} {kind}" for url in sorted(urls) for kind in kinds]
    assert printed == [*expected, *(f"2 put back {url}" for url in urls)]
    assert spark.read.parquet(str(out)).count() == 2 * len(CAUSES) * len(urls)
    for url in urls:
        with redelivery.dead_letters(redelivery_spark.with_credentials(url, login)) as dead:
            assert sorted(letter.cause_kind for letter in dead) == sorted(
                [*set(CAUSES) - {"TimeoutError"}] * 2
            )

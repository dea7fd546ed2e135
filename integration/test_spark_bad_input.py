"""Mistakes of a Spark user: each is one clear error at `load()` or `start()`, and no message is taken."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

import pytest

from integration.need import need_spark

need_spark()

from pyspark.errors import PySparkException

import redelivery_spark
from integration.peers import fill
from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from integration.brokers import Broker
    from integration.conftest import Session

pytestmark = pytest.mark.full("Spark: mistakes, 10 s each")


@pytest.fixture
def broker(session: Session) -> Broker:
    """Artemis."""
    return session.broker("artemis")


def load(spark: SparkSession, broker: Broker, queue: str, folder: Path, **options: str) -> DataFrame:
    """Return a stream with the usual options, and these."""
    given = {"url": broker.uri(protocol="stomp"), "destination": queue, "walDir": str(folder / "wal")}
    reader = spark.readStream.format("redelivery")
    for name, value in (given | options).items():
        reader = reader.option(name, value)
    return reader.load()


def start(
    df: DataFrame, folder: Path, name: str = "checkpoint", *, ends: bool = True, **options: str
) -> StreamingQuery:
    """Start a query over it; `ends`: with AvailableNow."""
    writer = df.writeStream.format("noop").option("checkpointLocation", str(folder / name))
    for option, value in options.items():
        writer = writer.option(option, value)
    return writer.trigger(availableNow=True).start() if ends else writer.start()


def refusal(begin: Callable[[], StreamingQuery]) -> PySparkException:
    """Return the error that ends a query.

    Spark ends a query whose Python process needs more than 10 s to connect (`PythonWorkerFactory`, on a busy machine):
    our code has not begun then, and the query is started again.
    """
    for _ in range(3):
        with pytest.raises(PySparkException) as raised:
            begin().awaitTermination(120)
        if "Python worker failed to connect back" not in str(raised.value):
            break
    return raised.value


def said(error: BaseException) -> str:
    """Return the line of Spark's error that contains ours."""
    lines = re.findall(r"redelivery[\w.]*\.(?:ConfigurationError|AdapterError|LogInUse): .+", str(error))
    assert lines, str(error)[:3000]
    print(f"\n{lines[-1]}")
    return str(lines[-1])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"walDir": "/proc/nowhere/wal"}, r"walDir.*/proc/nowhere/wal"),
        ({"walDir": ""}, r"walDir"),
        ({"destinaton": "x"}, r"destinaton.*destination"),
        ({"maxTriggerDelay": "soon"}, r"maxTriggerDelay.*soon"),
        ({"url": "stmop://localhost"}, r"stmop.*stomp"),
        ({"url": "tcp://localhost:61616"}, r"tcp:// is OpenWire.*use stomp://"),
    ],
    ids=[
        "a walDir that cannot be",
        "an empty walDir",
        "an unknown option",
        "no number",
        "an unknown scheme",
        "Java's",
    ],
)
def test_wrong_options_are_told_by_load(
    spark: SparkSession,
    broker: Broker,
    unique_queue: str,
    tmp_path: Path,
    options: dict[str, str],
    sentence: str,
) -> None:
    """Wrong options are refused by `load()`, before anything connects."""
    with pytest.raises(PySparkException) as told:
        load(spark, broker, unique_queue, tmp_path, **options)
    assert re.search(sentence, said(told.value))


def test_no_folder_at_all(spark: SparkSession, broker: Broker, unique_queue: str, tmp_path: Path) -> None:
    """A missing walDir is refused when the query starts: only then does Spark reveal that it is a stream."""
    reader = spark.readStream.format("redelivery").option(
        "url", broker.uri(protocol="stomp").partition("?")[0]
    )
    df = reader.option("destination", unique_queue).load()
    error = refusal(lambda: start(df, tmp_path, ends=False))
    assert "walDir: missing" in said(error)
    assert "UnboundLocalError" not in str(error)


def test_a_folder_that_cannot_be_written(
    spark: SparkSession, broker: Broker, unique_queue: str, tmp_path: Path
) -> None:
    """A walDir that is a file is refused by `load()`."""
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(PySparkException) as told:
        load(spark, broker, unique_queue, tmp_path, walDir=str(file))
    assert re.search(r"walDir.*file", said(told.value))


@pytest.mark.parametrize("login", ["no password", "the wrong one"])
def test_wrong_credentials(
    spark: SparkSession, broker: Broker, unique_queue: str, tmp_path: Path, login: str
) -> None:
    """The broker's refusal ends the query at its start, and names neither user nor password."""
    uri = broker.uri(protocol="stomp").partition("?")[0]
    if login == "the wrong one":
        uri += "?jms.userName=nobody&jms.password=hunter2"
    df = load(spark, broker, unique_queue, tmp_path, url=uri)
    error = refusal(lambda: start(df, tmp_path))
    assert re.search(r"refused the log-in", said(error))
    assert "hunter2" not in str(error)


def test_a_log_and_a_checkpoint_that_do_not_belong_together(
    spark: SparkSession, broker: Broker, unique_queue: str, tmp_path: Path
) -> None:
    """A new checkpoint with an old log, and an old one with a new log, are refused at the start; nothing is lost."""
    fill(broker, "stomp", unique_queue, [b"%d" % n for n in range(5)])
    start(load(spark, broker, unique_queue, tmp_path), tmp_path).awaitTermination(120)
    fill(broker, "stomp", unique_queue, [b"%d" % n for n in range(5)])
    for checkpoint, wal in (("another", "wal"), ("checkpoint", "other-wal")):
        df = load(spark, broker, unique_queue, tmp_path, walDir=str(tmp_path / wal))
        begin = partial(start, df, tmp_path, checkpoint)
        assert re.search(r"walDir.*checkpoint|checkpoint.*walDir", said(refusal(begin)))
    last = start(load(spark, broker, unique_queue, tmp_path), tmp_path)
    last.awaitTermination(120)
    assert sum(each["numInputRows"] for each in last.recentProgress) == 5


def test_two_queries_on_one_log(
    spark: SparkSession, broker: Broker, unique_queue: str, tmp_path: Path
) -> None:
    """The second query on a log is refused; the first continues."""
    fill(broker, "stomp", unique_queue, [b"1"])
    first = start(load(spark, broker, unique_queue, tmp_path), tmp_path, "first", ends=False)
    try:
        while not any(each["numInputRows"] for each in first.recentProgress):
            assert first.exception() is None
            first.awaitTermination(1)
        df = load(spark, broker, unique_queue, tmp_path)
        begin = partial(start, df, tmp_path, "second")
        assert re.search(r"walDir.*(in use|another)", said(refusal(begin)))
        assert first.isActive
    finally:
        first.stop()


def test_asynchronous_progress(
    spark: SparkSession, broker: Broker, unique_queue: str, tmp_path: Path
) -> None:
    """`run` refuses a query whose checkpoint can be older than the log."""
    df = load(spark, broker, unique_queue, tmp_path)
    asked = {"asyncProgressTrackingEnabled": "true"}
    with pytest.raises(ConfigurationError, match="asyncProgressTrackingEnabled: not supported"):
        redelivery_spark.run(lambda: start(df, tmp_path, ends=False, **asked))

"""The programs on the pages of Spark run as they are shown, with a real broker, and their own paths."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.needs import need

from integration.need import need_spark

need_spark()

from pyspark.errors import StreamingQueryException
from tests.docs.pages import ROOT
from tests.docs.test_documents import blocks

import redelivery_spark
from integration.eventually import PATIENCE, eventually
from integration.peers import fill
from integration.postgres import Postgres, missing
from integration.spark_session import credentials

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from integration.brokers import Broker
    from integration.conftest import Session

pytestmark = [
    pytest.mark.full("Spark: the pages' blocks"),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

PAGES = ROOT / "docs" / "spark"
ENDS = ("redelivery_spark.run(query.start)", "redelivery_spark.run(query.trigger(availableNow=True).start)")
"""A program's last line, and one that ends with the queue."""


class Programs:
    """Programs of the pages, on one queue of one broker, with paths in one folder."""

    def __init__(self, spark: SparkSession, broker: Broker, queue: str, folder: Path) -> None:
        self.spark, self.broker, self.queue, self.folder = spark, broker, queue, folder
        self.stream = broker.uri(protocol="stomp", jms__redeliveryPolicy__maximumRedeliveries=4)

    def run(self, page: str, number: int = 0, **names: Any) -> dict[str, Any]:
        """Run a page's program, with these names, and return its names."""
        block = [each for each in blocks(PAGES / page) if each.kind == "python"][number]
        source = "\n" * block.line + self._here(block.text)  # so that a traceback names the page's own line
        space: dict[str, Any] = {"__name__": "__main__", "spark": self.spark, **names}
        exec(compile(source, page, "exec"), space)
        return space

    def _here(self, text: str) -> str:
        amqp = self.broker.uri(protocol="amqp").partition("?")[0]
        for there, here in {
            "stomp://broker:61613?jms.redeliveryPolicy.maximumRedeliveries=4": self.stream,
            "amqp://broker:5672": amqp,
            "/etc/app/broker.toml": credentials(self.broker, self.folder),
            "/shared": str(self.folder),
            '"orders")': f'"{self.queue}")',
            '"destination": "orders"': f'"destination": "{self.queue}"',
            ENDS[0]: ENDS[1],
        }.items():
            text = text.replace(there, here)
        return text

    def rows(self, log: str) -> Any:
        """Return a stream of the queue, with a log of its own."""
        reader = self.spark.readStream.format("redelivery").option("url", self.stream)
        return reader.option("destination", self.queue).option("walDir", str(self.folder / log)).load()

    def writer(self, log: str, write: Callable[[Any, int], object]) -> Any:
        """Return a writer of the queue's rows, for `write`."""
        writer = self.rows(log).writeStream.foreachBatch(write)
        return writer.option("checkpointLocation", str(self.folder / f"{log}.checkpoint"))

    def fill(self, *bodies: str) -> None:
        """Send messages."""
        fill(self.broker, "stomp", self.queue, [body.encode() for body in bodies])


@pytest.fixture
def programs(spark: SparkSession, artemis: Broker, unique_queue: str, tmp_path: Path) -> Programs:
    """The programs, on Artemis."""
    return Programs(spark, artemis, unique_queue, tmp_path)


def test_the_stream(programs: Programs) -> None:
    """The first program writes a row of each message; with another checkpoint it replaces no row."""
    programs.fill("1.5", "2.5")
    space = programs.run("stream.md")
    programs.fill("3.5")
    writer = programs.writer("second", space["write"])
    with pytest.raises(
        StreamingQueryException, match=r"ConfigurationError: path=\S+: another query has written"
    ):
        redelivery_spark.run(writer.trigger(availableNow=True).start)
    rows = programs.spark.read.parquet(f"{programs.folder}/orders/rows").collect()
    assert sorted(row.total for row in rows) == [1.5, 2.5]


@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_a_sink_with_ids_of_batches(programs: Programs) -> None:
    """The sink has each row once: over an attempt that failed after it, and with a new checkpoint."""
    psycopg = need("psycopg")
    with Postgres() as server:
        space = programs.run("sinks.md", psycopg=psycopg, database=server.conninfo)
        text = next(each.text for each in blocks(PAGES / "sinks.md") if each.kind == "python")
        with psycopg.connect(server.conninfo) as connection:
            connection.execute(text.splitlines()[0].removeprefix("# "))
        failures = iter([True])

        def write(df: Any, batch_id: int) -> None:
            space["write"](
                df.selectExpr("message_id id", "cast(cast(body as string) as double) total"), batch_id
            )
            if next(failures, False):
                raise OSError("the second sink is down")

        for log, total in (("first", "1.5"), ("second", "2.5")):
            programs.fill(total)
            redelivery_spark.run(programs.writer(log, write).trigger(availableNow=True).start, max_restarts=1)
        with psycopg.connect(server.conninfo) as connection:
            found = connection.execute("select total from orders order by 1").fetchall()
            assert found == [(1.5,), (2.5,)]
            assert connection.execute("select count(distinct query) from done").fetchone() == (2,)


def test_a_stop_between_batches(programs: Programs) -> None:
    """SIGTERM lets the batch that runs end, and then stops the query."""
    programs.fill("1.5")
    began, ended = threading.Event(), threading.Event()

    def write(_: Any, __: int) -> None:
        began.set()
        threading.Event().wait(3)
        ended.set()

    def stop() -> None:
        if began.wait(PATIENCE):
            os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    stopper = threading.Thread(target=stop)
    stopper.start()
    try:
        space = programs.run(
            "operate.md", writer=programs.writer("log", write), signal=signal, threading=threading, time=time
        )
    finally:
        signal.signal(signal.SIGTERM, before)
        stopper.join()
    assert ended.is_set()
    assert space["query"].exception() is None
    assert not space["query"].isActive


@pytest.fixture
def monitor(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The example of a listener."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    yield importlib.import_module("spark_monitor")
    sys.modules.pop("spark_monitor", None)


def test_the_export_to_prometheus(programs: Programs, monitor: Any) -> None:
    """The gauge has a value for each key of a query's report."""
    prometheus = need("prometheus_client")
    programs.fill("1.5")
    space = programs.run("monitor.md", prometheus_client=prometheus, spark_monitor=monitor)
    query = programs.writer("log", lambda _, __: None).trigger(availableNow=True).start()
    query.awaitTermination()

    def keys() -> set[str]:
        samples = next(iter(space["gauge"].collect())).samples
        return {sample.labels["key"] for sample in samples if sample.labels["query"] == str(query.id)}

    eventually(lambda: keys() == {"waiting", "deadLettered", "ahead", "connected"})
    prometheus.REGISTRY.unregister(space["gauge"])


def test_dead_letters_and_a_drain(programs: Programs) -> None:
    """The look at dead letters counts them, and the drain shows each message of a queue once."""
    programs.fill("1.5", "2.5")
    programs.run("batch.md", 0)
    drained = programs.run("batch.md", 1)["drained"]
    assert sorted(bytes(row.body) for row in drained.collect()) == [b"1.5", b"2.5"]


def test_writes(programs: Programs, session: Session) -> None:
    """Rows of a DataFrame and of a stream are messages."""
    df = programs.spark.createDataFrame([("a", {"n": "1"})], "body string, properties map<string,string>")
    folder = programs.folder / "in"
    df.select("body").coalesce(1).write.text(str(folder))
    stream = programs.spark.readStream.text(str(folder)).withColumnRenamed("value", "body")
    programs.run("write.md", df=df, stream=stream)
    for query in programs.spark.streams.active:
        query.processAllAvailable()
        query.stop()
    found = session.client(programs.broker, "stomp").drain(programs.queue, expected=2)
    assert [each.body for each in found] == [b"a", b"a"]

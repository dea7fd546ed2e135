"""The examples of streams run unchanged: the first program, and the listener that watches it."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from integration.need import need_spark

need_spark()

from integration.eventually import eventually
from integration.peers import fill

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from integration.brokers import Broker
    from integration.conftest import Session
    from integration.proxy import LinkProxy

pytestmark = [
    pytest.mark.full("Spark: the examples"),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def reports(spark: SparkSession) -> Iterator[list[dict[str, int]]]:
    """Yield the reports of the listener."""
    found: list[dict[str, int]] = []
    example: dict[str, Any] = runpy.run_path(str(EXAMPLES / "spark_monitor.py"))
    monitor = example["Monitor"](spark, lambda _, report: found.append(report))
    spark.streams.addListener(monitor)
    yield found
    spark.streams.removeListener(monitor)


def test_the_first_program(
    spark: SparkSession,
    session: Session,
    artemis: Broker,
    unique_queue: str,
    reports: list[dict[str, int]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Orders are rows; a message that fails twice, and one that is no order, are dead letters with their causes."""
    orders = [json.dumps({"price": 2, "count": number}).encode() for number in range(20)]
    fill(artemis, "stomp", unique_queue, [*orders, b'{"price": 2}', b"no order"])
    dead = f"{unique_queue}.dead"
    more: dict[str, Any] = {
        "jms__redeliveryPolicy__maximumRedeliveries": 1,
        "jms__redeliveryPolicy__redeliveryDelay": 200,
        "redelivery__deadLetterDestination": dead,
    }
    out = tmp_path / "out"
    line = ["stream", "--url", artemis.uri(protocol="stomp", **more), "--destination", unique_queue]
    monkeypatch.setattr(sys, "argv", [*line, "--state", str(tmp_path), "--out", str(out), "--once"])
    runpy.run_path(str(EXAMPLES / "spark_stream.py"), run_name="__main__")
    totals = sorted(row.total for row in spark.read.parquet(str(out)).collect())
    assert totals == [2.0 * number for number in range(20)]
    letters = session.client(artemis, "stomp").drain(dead, expected=2)
    assert {letter.body: letter.properties["redeliveryCause"] for letter in letters} == {
        b'{"price": 2}': "KeyError: 'count'",
        b"no order": "Poison: it is not JSON",
    }
    assert session.client(artemis, "stomp").drain(unique_queue) == []
    # The last dead letter comes after the last batch, after which Spark reports nothing more.
    eventually(lambda: reports)
    assert all(report["connected"] for report in reports)


def test_a_stream_without_rows_is_watched(
    spark: SparkSession,
    artemis: Broker,
    make_proxy: Callable[..., LinkProxy],
    unique_queue: str,
    reports: list[dict[str, int]],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Without rows the listener still shows the source's report, and warns of a lost connection."""
    proxy = make_proxy(artemis.stomp_port)
    spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "1s")
    source = spark.readStream.format("redelivery").option(
        "url", artemis.uri(protocol="stomp", port=proxy.port)
    )
    rows = source.option("destination", unique_queue).option("walDir", str(tmp_path / "log")).load()
    query = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    well = {"waiting": 0, "deadLettered": 0, "ahead": 0, "connected": 1}
    try:
        eventually(lambda: well in reports)
        proxy.refuse()
        proxy.cut()
        eventually(lambda: {**well, "connected": 0} in reports)
        eventually(lambda: "there is no connection to the broker" in caplog.text)
    finally:
        query.stop()
        spark.conf.unset("spark.sql.streaming.noDataProgressEventInterval")

"""One round of the Spark source: a JSON file with master, url, queue, messages, folder, options, broker (its pid).

Prints JSON. Imports only `benchmarks` of this checkout: the library is that of PYTHONPATH.

The measurement begins at the end of the batch that passes `begin` of the messages, but not before the end of the first
batch, in which Spark starts its workers. It ends at the end of the batch that passes `end` of them.

With `latency` seconds in the file, bodies are the times at which they were sent. The result is then the age of each
message when a batch had its row.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

from pyspark.sql import SparkSession

from benchmarks.processor_time import ProcessorTime, busy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

PATIENCE = 300.0
LOOK = 0.1  # seconds
# Roles whose work depends on the rows that are read from the broker; the others' depends on the rows of batches.
READING = ("broker", "runner")


class Batches:
    """Progress of a query: Spark's report of each batch that had rows."""

    def __init__(self, query: StreamingQuery) -> None:
        """Begin without a batch."""
        self._query = query
        self._last = -1
        self.progress: list[Any] = []
        self.rows = 0

    def look(self) -> None:
        """Add the new reports. The whole list is read once a batch, as that is expensive for the JVM."""
        if (error := self._query.exception()) is not None:
            raise SystemExit(str(error))
        last = self._query.lastProgress
        if last is None or last["batchId"] == self._last:
            return
        for each in self._query.recentProgress:
            if each["batchId"] > self._last and each["numInputRows"]:
                self.progress.append(each)
                self.rows += each["numInputRows"]
        self._last = last["batchId"]


class Mark:
    """Batches and processor time at one moment."""

    def __init__(self, batches: Batches, spent: ProcessorTime) -> None:
        """Record the current state."""
        self.batch = len(batches.progress) - 1
        self.rows = batches.rows
        self.spent = spent.totals()
        self.busy = busy()
        self.time = time.monotonic()


def session(master: str) -> SparkSession:
    """Start Spark, with a JVM that compiles as much as possible."""
    builder = SparkSession.builder.master(master).appName("redelivery")
    builder = builder.config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1")
    builder = builder.config("spark.sql.streaming.numRecentProgressUpdates", "10000")
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def read(spark: SparkSession, config: dict[str, Any]) -> DataFrame:
    """Return the stream."""
    reader = spark.readStream.format("redelivery").option("url", config["url"])
    reader = reader.option("destination", config["queue"]).option("walDir", f"{config['folder']}/wal")
    return reader.options(**config["options"]).load()


def rate(spark: SparkSession, config: dict[str, Any]) -> dict[str, Any]:
    """Return rows a second, and the processor time of a row by role."""
    writer = read(spark, config).writeStream.format("noop")
    query = writer.option("checkpointLocation", f"{config['folder']}/checkpoint").start()
    batches, spent = Batches(query), ProcessorTime(config["broker"], os.getpid())
    begin: Mark | None = None
    until = time.monotonic() + PATIENCE
    while batches.rows < config["end"] * config["messages"] and time.monotonic() < until:
        time.sleep(LOOK)
        spent.look()
        batches.look()
        if begin is None and batches.rows >= max(1, config["begin"] * config["messages"]):
            begin = Mark(batches, spent)
    end = Mark(batches, spent)
    query.stop()
    if begin is None or end.batch == begin.batch:
        raise SystemExit(f"{batches.rows} rows in {end.batch + 1} batches: nothing can be counted")
    return counted(batches.progress, begin, end) | {"peaks": spent.peaks}


def counted(progress: list[Any], begin: Mark, end: Mark) -> dict[str, Any]:
    """Return the figures between two marks."""
    first, batches = progress[begin.batch], progress[begin.batch + 1 : end.batch + 1]
    sizes = [each["numInputRows"] for each in batches]
    spent = {role: end.spent[role] - seconds for role, seconds in begin.spent.items()}
    took = end.time - begin.time
    before, after = ahead(first), ahead(batches[-1])
    rows = {"jvm": sum(sizes), "workers": sum(sizes), **dict.fromkeys(READING, sum(sizes) + after - before)}
    return {
        "rate": sum(sizes) / (ended(batches[-1]) - ended(first)),
        "us": {role: 1e6 * seconds / max(rows[role], 1) for role, seconds in spent.items()},
        "ahead": [before, after],
        "sizes": [min(sizes), statistics.median(sizes), max(sizes)],
        "ms": {
            name: statistics.median(each["durationMs"].get(name, 0) for each in batches)
            for name in ("latestOffset", "addBatch")
        },
        "busy": (end.busy - begin.busy) / took,
        "ours": sum(spent.values()) / took,
    }


def ended(progress: Any) -> float:
    """Return the time at which a batch ended."""
    return datetime.fromisoformat(progress["timestamp"]).timestamp() + float(progress["batchDuration"]) / 1000


def ahead(progress: Any) -> int:
    """Return the rows that the source reports to have, with or without those of the batch."""
    told = json.loads(progress["sources"][0]["latestOffset"] or "{}")
    lanes = told.get("ahead", {"": told.get("buffered") or 0})
    return sum(lanes.values()) if isinstance(lanes, dict) else int(lanes)


def latency(spark: SparkSession, config: dict[str, Any]) -> dict[str, Any]:
    """Return the age of messages at the sink, in seconds, without the first `warm_up` seconds of batches."""
    ages: list[float] = []
    began: list[float] = []
    running = threading.Event()

    def write(df: DataFrame, _: int) -> None:
        bodies = [bytes(row.body) for row in df.select("body").collect()]
        now = time.time()
        if bodies and not began:
            began.append(time.monotonic())
            running.set()
        if began and time.monotonic() - began[0] > config["warm_up"]:
            ages.extend(now - float(body[:17]) for body in bodies)

    writer = read(spark, config).writeStream.foreachBatch(write)
    query = writer.option("checkpointLocation", f"{config['folder']}/checkpoint").start()
    print(json.dumps({"ready": True}), flush=True)
    running.wait(PATIENCE)
    query.awaitTermination(config["warm_up"] + config["latency"])
    progress = [each for each in query.recentProgress if each["numInputRows"]]
    query.stop()
    parts = statistics.quantiles(ages, n=100)
    found = {"p50": parts[49], "p99": parts[98], "most": max(ages), "rows": len(ages)}
    return found | {"ms": median_of_phases(progress)}


def median_of_phases(progress: list[Any]) -> dict[str, float]:
    """Return the median time of each phase of a batch, and its rows, for the later half of the batches."""
    later = progress[len(progress) // 2 :]
    rows = {"rows": statistics.median(each["numInputRows"] for each in later)}
    names = sorted({name for each in later for name in each["durationMs"]})
    return {
        name: statistics.median(each["durationMs"].get(name, 0) for each in later) for name in names
    } | rows


def main() -> None:
    """Run one round."""
    config: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    spark = session(config["master"])
    print(json.dumps((latency if config.get("latency") else rate)(spark, config)), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()

"""One round of the Spark source: a JSON file with master, url, queue, messages, folder, consumers, partitions.

Prints JSON.

With `latency` seconds in the file, bodies are the times at which they were sent, and what is printed is how old each
message was when a batch had its rows.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

from integration.spark_jvm import new_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PATIENCE = 300.0


def read(spark: SparkSession, config: dict[str, Any]) -> DataFrame:
    """Return the stream."""
    reader = spark.readStream.format("redelivery").option("url", config["url"])
    reader = reader.option("destination", config["queue"]).option("walDir", f"{config['folder']}/wal")
    for name in ("consumers", "partitions", "maxMessagesPerTrigger"):
        reader = reader.option(name, str(config[name]))
    return reader.load()


def rate(spark: SparkSession, config: dict[str, Any]) -> dict[str, Any]:
    """Return rows a second from the end of the first batch, which starts workers, to the end of the last."""
    writer = read(spark, config).writeStream.format("noop")
    query: StreamingQuery = writer.option("checkpointLocation", f"{config['folder']}/checkpoint").start()
    until, rows = time.monotonic() + PATIENCE, 0
    while rows < config["messages"] and time.monotonic() < until:
        if (error := query.exception()) is not None:
            raise SystemExit(str(error))
        time.sleep(0.2)
        rows = sum(each["numInputRows"] for each in query.recentProgress)
    batches = [
        (
            datetime.fromisoformat(each["timestamp"]).timestamp() + each["batchDuration"] / 1000,
            each["numInputRows"],
        )
        for each in query.recentProgress
        if each["numInputRows"]
    ]
    query.stop()
    took = batches[-1][0] - batches[0][0]
    counted = sum(rows for _, rows in batches[1:])
    return {"rate": counted / took, "batches": len(batches), "rows": rows}


def latency(spark: SparkSession, config: dict[str, Any]) -> dict[str, Any]:
    """Return how old messages are when a sink has them, in seconds, but for those of the first five seconds."""
    ages: list[float] = []
    began = time.monotonic()

    def write(df: DataFrame, _: int) -> None:
        bodies = [bytes(row.body) for row in df.select("body").collect()]
        now = time.time()
        if time.monotonic() - began > config["warm_up"]:
            ages.extend(now - float(body[:17]) for body in bodies)

    writer = read(spark, config).writeStream.foreachBatch(write)
    query = writer.option("checkpointLocation", f"{config['folder']}/checkpoint").start()
    print(json.dumps({"ready": True}), flush=True)
    query.awaitTermination(config["warm_up"] + config["latency"])
    query.stop()
    parts = statistics.quantiles(ages, n=100)
    return {"p50": parts[49], "p99": parts[98], "most": max(ages), "rows": len(ages)}


def main() -> None:
    """Run one round."""
    config: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    spark = new_session(config["master"], options="")  # JVMs that compile all they can
    print(json.dumps((latency if config.get("latency") else rate)(spark, config)), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()

"""A query in a process of its own, which can be killed: `python -m integration.spark_query CONFIG.json`.

The beginning of a message's body decides its fate: `good`, `bad` (its handler always fails), `flaky` (fails twice),
`once` (fails once), `killer` (its sink fails). The time of each attempt is written to a file, and with `noted` the
content of each run of a batch. With `second` another sink after the first one raises that often. The process ends with
status 0 when the query has ended by itself, and prints the batches and the restarts as JSON lines. If the process that
has started it ends first, it is killed with all that Spark has started.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

import redelivery_spark
from integration.spark_crash import Crashing
from integration.spark_jvm import new_session
from integration.spark_sinks import FailingSink, note, note_begun, sink

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["handle", "session"]

FAILS = {"once": 1, "flaky": 2}  # attempts


def session(config: dict[str, Any]) -> SparkSession:
    """Return a session of the configured master."""
    spark = new_session(config.get("master", "local[2]"), config["java"], config.get("spark"))
    spark.dataSource.register(Crashing)
    return spark


def note_attempt(body: str, count: int) -> None:
    """Write the time of an attempt at a message, in the process that makes it, to a file of its own."""
    folder = os.environ.get("REDELIVERY_TIMES")
    if folder is not None and not body.startswith("good"):
        with (Path(folder) / str(os.getpid())).open("a", encoding="utf-8") as file:
            file.write(f"{body} {count} {time.time()}\n")


def handle(row: Row) -> tuple[str, str, int]:
    """Do what the message's body asks for."""
    body = bytes(row.body).decode()
    kind = body.split("-", 1)[0]
    note_attempt(body.rstrip("x"), row.delivery_count)
    if kind == "bad" or row.delivery_count < FAILS.get(kind, 0) + 1:
        raise ValueError(f"{kind} at delivery {row.delivery_count}")
    return row.message_id, body.rstrip("x"), row.delivery_count


def writing(config: dict[str, Any]) -> Callable[[DataFrame, int], None]:
    """Return the function that writes a batch."""
    folder = Path(config["checkpoint"]).parent  # the log can be in an object store
    flag = Path(config["wal"] + ".crash")
    first = sink(config["sink"], config["out"])
    second = FailingSink(folder / "second", config.get("second", 0))

    def write(df: DataFrame, batch_id: int) -> None:
        note_begun(folder, batch_id)
        rows = df.persist()
        if rows.filter("body like 'killer%'").count():
            raise RuntimeError("the sink does not like it")
        if config.get("noted"):
            note(folder, batch_id, [row.body for row in rows.collect()])
        first(rows, batch_id)
        second(batch_id)
        rows.unpersist()
        if config.get("crash") == "in the sink" and batch_id >= 2 and flag.exists():
            flag.unlink()
            os.killpg(os.getpgid(0), signal.SIGKILL)

    return write


def start(spark: SparkSession, config: dict[str, Any]) -> StreamingQuery:
    """Start the query of `config`."""
    reader = spark.readStream.format(config.get("format", "redelivery")).option("url", config["url"])
    reader = reader.option("destination", config["queue"]).option("walDir", config["wal"])
    for name, value in config.get("options", {}).items():
        reader = reader.option(name, value)
    made = redelivery_spark.process(reader.load(), handle, "message_id string, body string, count int")
    if config["sink"] == "files":
        writer = made.writeStream.format("parquet").option("path", config["out"])
    else:
        writer = made.writeStream.foreachBatch(redelivery_spark.foreach_batch(writing(config)))
    writer = writer.option("checkpointLocation", config["checkpoint"])
    trigger = (
        {"availableNow": True} if config.get("trigger") is None else {"processingTime": config["trigger"]}
    )
    return writer.trigger(**trigger).start()


def end_with(parent: int) -> None:
    """Kill this process and all of its group once its parent has ended."""

    def watch() -> None:
        pause = threading.Event()
        while os.getppid() == parent:
            pause.wait(1.0)
        os.killpg(os.getpgid(0), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def main(path: str) -> int:
    """Run the query to its end."""
    end_with(os.getppid())
    config: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    spark = session(config)
    starts: list[float] = []
    queries: list[StreamingQuery] = []

    def started() -> StreamingQuery:
        starts.append(time.time())
        queries.append(start(spark, config))
        return queries[-1]

    redelivery_spark.run(started, max_restarts=config.get("restarts"), wal_dir=config["wal"])
    for progress in (each for query in queries for each in query.recentProgress):
        began = datetime.fromisoformat(progress["timestamp"]).timestamp()
        told = {"batch": progress["batchId"], "rows": progress["numInputRows"]}
        print(json.dumps(told | {"began": began, "ended": began + progress["batchDuration"] / 1000}))
    print(json.dumps({"starts": starts}), flush=True)
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

"""The reader of the Spark source without Spark: a JSON file with url, queue, messages, folder, broker, warm_up.

`broker`: its pid. `warm_up`: the same keys for a run before, which is not measured.
Prints JSON: rows a second, and µs of processor time for a row, of this process and of the broker.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.processor_time import ProcessorTime
from redelivery_spark.options.source_options import read_options
from redelivery_spark.stream.stream_reader import opened

if TYPE_CHECKING:
    from redelivery_spark.wal.lane import Vector


def read_to_log(config: dict[str, Any]) -> int:
    """Read `messages` of the queue into a write-ahead log in `folder`, in batches like Spark; return their number."""
    options = read_options(
        {
            "url": config["url"],
            "destination": config["queue"],
            "walDir": f"{config['folder']}/wal",
        }
    )
    coordinator = opened(options)
    start: Vector = {}
    rows = 0
    try:
        while rows < config["messages"]:
            end = coordinator.latest(start, options.most_rows)
            rows += sum(segment.rows for _, segment in coordinator.segments(start, end))
            start = end
    finally:
        coordinator.close()
    return rows


def main() -> None:
    """Run one round."""
    config: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    # Modules are imported, and code is compiled, at the first use.
    read_to_log(config | config["warm_up"])
    spent = ProcessorTime(config["broker"], os.getpid())
    broker, own, began = spent.totals()["broker"], time.process_time(), time.perf_counter()
    rows = read_to_log(config)
    took = time.perf_counter() - began
    us = {"runner": time.process_time() - own, "broker": spent.totals()["broker"] - broker}
    print(json.dumps({"rate": rows / took, "us": {role: 1e6 * each / rows for role, each in us.items()}}))


if __name__ == "__main__":
    main()

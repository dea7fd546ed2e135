"""The reader of the Spark source without Spark: a JSON file with url, queue, messages, folder, broker, warm_up.

`broker`: its pid. `warm_up`: the same for what is read before, and not counted.
Prints JSON: rows a second, and µs of processor for a row of this process and of the broker.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.processor_time import ProcessorTime


def read_to_log(config: dict[str, Any]) -> int:
    """Read `messages` of the queue into a log in `folder`, accept them, drop what is settled; return how many.

    To be filled in with the source's own reader: one lane, the reader's `step()` on this thread, `lane.settle()` after
    each segment. Until then there is none that runs without Spark.
    """
    raise NotImplementedError(f"no reader without Spark yet: {sorted(config)}")


def main() -> None:
    """Run one round."""
    config: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    # Imports, and what compiles itself at the first use.
    read_to_log(config | config["warm_up"])
    spent = ProcessorTime(config["broker"], os.getpid())
    broker, own, began = spent.totals()["broker"], time.process_time(), time.perf_counter()
    rows = read_to_log(config)
    took = time.perf_counter() - began
    us = {"runner": time.process_time() - own, "broker": spent.totals()["broker"] - broker}
    print(json.dumps({"rate": rows / took, "us": {role: 1e6 * each / rows for role, each in us.items()}}))


if __name__ == "__main__":
    main()

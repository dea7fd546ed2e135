"""A task that drains a queue and is killed: `python -m integration.killed_drain OPTIONS.json SEGMENT before|after`."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from redelivery_spark.batch.drain import DrainedQueue
from redelivery_spark.source import RedeliveryDataSource

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["drained"]


def drained(options: dict[str, str]) -> list[bytes]:
    """Drain as Spark's tasks do; return the bodies."""
    source = RedeliveryDataSource(options)
    reader = source.reader(source.schema())
    parts = reader.partitions()
    return [
        body for part in parts for batch in reader.read(part) for body in batch.column("body").to_pylist()
    ]


def main(path: str, segment: str, when: str) -> None:
    """Drain, and die before or after a segment is published."""
    publish = DrainedQueue.publish

    def dying(self: DrainedQueue, number: int, rows: pa.Table) -> bool:
        if number == int(segment):
            if when == "after":
                publish(self, number, rows)
            os.kill(os.getpid(), signal.SIGKILL)
        return publish(self, number, rows)

    DrainedQueue.publish = dying  # type: ignore[method-assign]
    drained(json.loads(Path(path).read_text(encoding="utf-8")))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Starts `integration.spark_query` for tests, and reads what it has left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from integration.matrix import FULL
from integration.spark_jvm import java_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from integration.brokers import Broker

__all__ = ["SparkRun"]

ROOT = Path(__file__).parent.parent
SIZE = 1000  # bytes of a body
LONGEST = 1200.0 if FULL else 420.0  # seconds that a run may take
KILLED = -signal.SIGKILL


@dataclass
class SparkRun:
    """One query: its log, its checkpoint and its output, over as many processes as it takes."""

    folder: Path
    broker: Broker
    protocol: str
    queue: str
    sink: str = "once"
    options: dict[str, str] = field(default_factory=dict[str, str])
    uri: dict[str, Any] = field(default_factory=dict[str, Any])
    more: dict[str, Any] = field(default_factory=dict[str, Any])
    starts: int = 0
    printed: str = ""

    def __post_init__(self) -> None:
        self.out = self.folder / "out"
        self.wal = self.folder / "wal"
        self.times = self.folder / "times"
        self.times.mkdir()

    def config(self) -> dict[str, Any]:
        """What the process is told."""
        return {
            "url": self.broker.uri(protocol=self.protocol, **self.uri),
            "queue": self.queue,
            "wal": str(self.wal),
            "checkpoint": str(self.folder / "checkpoint"),
            "out": str(self.out),
            "sink": self.sink,
            "options": self.options,
            "java": java_options(),
            **self.more,
        }

    def begin(self) -> subprocess.Popen[str]:
        """Start a process, in a group of its own."""
        self.starts += 1
        path = self.folder / "config.json"
        path.write_text(json.dumps(self.config()), encoding="utf-8")
        return subprocess.Popen(
            [sys.executable, "-m", "integration.spark_query", str(path)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "REDELIVERY_TIMES": str(self.times)},
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def end(self, process: subprocess.Popen[str]) -> int:
        """Wait for its end; kill it if that takes too long."""
        try:
            printed, _ = process.communicate(timeout=LONGEST)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            printed, _ = process.communicate()
        self.printed = printed
        return process.returncode

    def run(self, crash: str | None = None) -> None:
        """Run until the query has ended by itself; `crash`: it dies there once."""
        if crash is not None:
            self.wal.with_suffix(".crash").touch()
            self.more["crash"] = crash
            if crash != "in the sink":
                self.more["format"] = "redelivery-crashing"
                self.options["crashPoint"] = crash
            status = self.end(self.begin())
            assert status == KILLED, f"it should have died: {status}\n{self.printed[-3000:]}"
        status = self.end(self.begin())
        assert status == 0, f"{status}\n{self.printed[-5000:]}"

    def told(self) -> list[dict[str, Any]]:
        """What the last process has printed as JSON."""
        return [json.loads(line) for line in self.printed.splitlines() if line.startswith("{")]

    def bodies(self) -> Counter[str]:
        """How often each body is in the output."""
        if self.sink == "lines":
            return Counter(self.out.read_text(encoding="utf-8").split())
        if self.sink == "files":
            return Counter(body for name in self._committed() for body in _column(name))
        return Counter(body for name in self._parquet() for body in _column(name))

    def attempts(self) -> dict[str, list[tuple[float, float]]]:
        """When each message that is not good was tried, on the wall's clock: first and last at each delivery's number.

        A number is tried again where its batch was.
        """
        lines = [line.split() for path in self.times.iterdir() for line in path.read_text().splitlines()]
        found: dict[str, dict[int, list[float]]] = {}
        for body, count, at in lines:
            found.setdefault(body, {}).setdefault(int(count), []).append(float(at))
        return {
            body: [(min(times), max(times)) for _, times in sorted(counts.items())]
            for body, counts in found.items()
        }

    def waited(self) -> list[float]:
        """How long each redelivery came after the attempt before it, in seconds."""
        return [again[0] - last[1] for tries in self.attempts().values() for last, again in pairwise(tries)]

    def late(self, delay: float) -> list[tuple[float, float]]:
        """How late each redelivery was, after the end of its batch and the delay, and the longest batch meanwhile.

        But for those in whose time the query was started again.
        """
        *batches, end = self.told()
        found: list[tuple[float, float]] = []
        for last, again in (pair for tries in self.attempts().values() for pair in pairwise(tries)):
            if any(last[1] < start < again[0] for start in end["starts"]):
                continue
            settled = min(each["ended"] for each in batches if each["ended"] >= last[1])
            meanwhile = [
                each["ended"] - each["began"]
                for each in batches
                if each["ended"] > last[1] and each["began"] < again[0]
            ]
            found.append((again[0] - settled - delay, max(meanwhile)))
        return found

    def _parquet(self) -> Iterator[Path]:
        """The files that no task is writing; what Spark takes away meanwhile is passed over."""
        for folder, inside, names in os.walk(self.out):
            inside[:] = [name for name in inside if name != "_temporary"]
            yield from (Path(folder, name) for name in names if name.endswith(".parquet"))

    def _committed(self) -> Sequence[Path]:
        """The files of Spark's own sink that its log knows."""
        logs = [path for path in (self.out / "_spark_metadata").iterdir() if not path.name.startswith(".")]
        lines = [line for path in logs for line in path.read_text(encoding="utf-8").splitlines()[1:]]
        names = {json.loads(line)["path"].rpartition("/")[2] for line in lines}
        return [self.out / name for name in names]


def _column(path: Path) -> list[str]:
    return [str(value) for value in pq.ParquetFile(path).read(columns=["body"]).column("body").to_pylist()]

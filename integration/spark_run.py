"""Runner of `integration.spark_query` for tests, and reader of its results."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from tests.tiers import runs_all_of

from integration.spark_jvm import java_options
from integration.spark_sinks import found

if TYPE_CHECKING:
    from collections import Counter

    from integration.brokers import Broker

__all__ = ["PATH", "SparkRun"]

ROOT = Path(__file__).parent.parent
PATH = os.pathsep.join(str(ROOT / name) for name in ("", "client", "adapters"))
SIZE = 1000  # bytes of a body
LONGEST = 1200.0 if runs_all_of("spark") else 420.0  # seconds for one run
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
        self.log = self.folder / "log"
        self.times.mkdir()

    def config(self) -> dict[str, Any]:
        """Return the configuration of the process."""
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

    def begin(self, *, quiet: bool = False) -> subprocess.Popen[str]:
        """Start a process, in a group of its own. `quiet`: its output goes to a file, and need not be read."""
        with self.log.open("a") as log:
            return self._begun(log if quiet else subprocess.PIPE)

    def _begun(self, output: IO[str] | int) -> subprocess.Popen[str]:
        self.starts += 1
        path = self.folder / "config.json"
        path.write_text(json.dumps(self.config()), encoding="utf-8")
        return subprocess.Popen(
            [sys.executable, "-m", "integration.spark_query", str(path)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": PATH, "REDELIVERY_TIMES": str(self.times)},
            start_new_session=True,
            stdout=output,
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
        """Run until the query has ended by itself; `crash`: it dies at this point once."""
        if crash is not None:
            self.arm(crash, "all 1")
            status = self.end(self.begin())
            assert status == KILLED, f"it should have died: {status}\n{self.printed[-3000:]}"
        status = self.end(self.begin())
        assert status == 0, f"{status}\n{self.printed[-5000:]}"

    def arm(self, crash: str, whom: str) -> None:
        """Arm the death of the next start. `whom`: `all` or `runner`, and how often."""
        self.wal.with_suffix(".crash").write_text(whom, encoding="utf-8")
        self.more |= {"crash": crash, "format": "redelivery-crashing"}
        if crash != "in the sink":
            self.options["crashPoint"] = crash

    def told(self) -> list[dict[str, Any]]:
        """Return the JSON lines that the last process has printed."""
        return [json.loads(line) for line in self.printed.splitlines() if line.startswith("{")]

    def bodies(self) -> Counter[str]:
        """Return how often each body is in the output."""
        return found(self.sink, self.more.get("out", str(self.out)))

    def committed(self) -> int:
        """Return the number of the last batch that Spark has committed; -1: none."""
        commits = self.folder / "checkpoint" / "commits"
        names = [path.name for path in commits.iterdir()] if commits.is_dir() else []
        return max((int(name) for name in names if name.isdigit()), default=-1)

    def attempts(self) -> dict[str, list[tuple[float, float]]]:
        """Return the attempts at each message that is not good, by wall clock: first and last of each delivery's
        number.

        A number is tried again when its batch is.
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
        """Return the seconds from each attempt to the next redelivery."""
        return [again[0] - last[1] for tries in self.attempts().values() for last, again in pairwise(tries)]

    def late(self, delay: float) -> list[tuple[float, float]]:
        """Return the delay of each redelivery past the end of its batch and its policy's delay, and the longest batch.

        Of the last process only, without those during which the query was started again.
        """
        *batches, end = self.told()
        found: list[tuple[float, float]] = []
        for last, again in (pair for tries in self.attempts().values() for pair in pairwise(tries)):
            if last[1] < end["starts"][0] or any(last[1] < start < again[0] for start in end["starts"]):
                continue
            settled = min(each["ended"] for each in batches if each["ended"] >= last[1])
            meanwhile = [
                each["ended"] - each["began"]
                for each in batches
                if each["ended"] > last[1] and each["began"] < again[0]
            ]
            found.append((again[0] - settled - delay, max(meanwhile)))
        return found

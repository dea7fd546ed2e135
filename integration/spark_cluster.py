"""Standalone cluster of the pip package, for tests: a master, and workers with one core each, all on loopback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

from integration.brokers import free_ports
from integration.eventually import eventually
from integration.spark_jvm import java_options
from integration.spark_run import PATH

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType
    from typing import Self

__all__ = ["Cluster", "executors_of"]

STARTS = 180.0  # seconds for a JVM on a busy machine


class Cluster:
    """A running cluster; `url` is the value of `master`."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self._folder = folder
        self._count = workers
        self._stack = ExitStack()
        port, self._page = free_ports(2)
        self.url = f"spark://127.0.0.1:{port}"
        self._home = Path(pyspark.__file__).parent
        self._master = [
            "master.Master",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "--webui-port",
            str(self._page),
        ]
        self.processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._stack = stack
            self._begin("master", *self._master)
            eventually(self._workers_told, STARTS, interval=0.5)
            for number in range(self._count):
                self._begin(
                    f"worker{number}", "worker.Worker", "--host", "127.0.0.1", "-c", "1", "-m", "1g",
                    "--webui-port", "0", self.url,
                )  # fmt: skip
            eventually(lambda: self._workers() == self._count, STARTS, interval=0.5)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _begin(self, name: str, what: str, *arguments: str) -> None:
        log = self._stack.enter_context((self._folder / f"{name}.log").open("wb"))
        process = subprocess.Popen(
            [self._home / "bin" / "spark-class", f"org.apache.spark.deploy.{what}", *arguments],
            cwd=self._folder,
            env={
                **os.environ,
                "SPARK_HOME": str(self._home),
                "SPARK_LOCAL_IP": "127.0.0.1",
                "SPARK_WORKER_DIR": str(self._folder / name),
                "PYSPARK_PYTHON": sys.executable,
                "PYTHONPATH": PATH,
                "SPARK_DAEMON_JAVA_OPTS": java_options(),
            },
            start_new_session=True,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        self.processes.append(process)
        self._stack.callback(_end, process)

    def _workers_told(self) -> bool:
        return self._workers() is not None

    def _workers(self) -> int | None:
        with (
            suppress(OSError),
            urllib.request.urlopen(f"http://127.0.0.1:{self._page}/json/", timeout=5) as page,
        ):
            return int(json.load(page)["aliveworkers"])
        return None


def executors_of(*ancestors: int) -> list[int]:
    """Return the process ids of the executors that descend from these processes."""
    found: list[int] = []
    waiting = list(ancestors)
    while waiting:
        for child in _children(waiting.pop()):
            waiting.append(child)
            with suppress(OSError):
                command = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
                if (
                    command[0].endswith(b"java")
                    and b"org.apache.spark.executor.CoarseGrainedExecutorBackend" in command
                ):
                    found.append(child)
    return found


def _children(pid: int) -> Iterator[int]:
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            yield from map(int, path.read_text().split())


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()

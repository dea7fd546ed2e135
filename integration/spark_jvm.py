"""Start of Spark's JVM for tests: lightly compiled, with its classes in an archive where one was made.

`python -m integration.prepare --spark` makes it, which pays in the nights only; no test does. `python -m
integration.spark_jvm ARCHIVE` runs a small stream, and the JVM writes the classes that it loaded. On two cores a
session and its first job take 6 s with the archive, and 13 s without.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

from integration.brokers.toolchain import LIGHT_JVM, cache_root, locked, progress

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["java_options", "make_archive", "new_session"]

LIGHT = " ".join((*LIGHT_JVM, "-Xlog:disable"))
LONGEST = 300.0  # seconds for making an archive


@cache
def java_options() -> str:
    """Return the options of a test's driver and executors; with the archive, if one was made."""
    archive = _archive()
    return f"{LIGHT} -XX:SharedArchiveFile={archive}" if archive.exists() else LIGHT


def new_session(
    master: str = "local[2]", options: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Start Spark in this process. `options`: those of its JVMs; default: a test's."""
    from pyspark.sql import SparkSession

    options = java_options() if options is None else options
    given = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraJavaOptions": options,
        "spark.executor.extraJavaOptions": options,
    }
    builder = SparkSession.builder.master(master).appName("redelivery")
    for name, value in {**given, **(settings or {})}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def make_archive() -> None:
    """Make the archive for this Java and Spark, unless it is there. It takes minutes on a busy machine."""
    archive = _archive()
    with locked(archive.stem):
        if archive.exists():
            return
        progress("making an archive of Spark's classes, once on this machine")
        made = archive.with_suffix(".made")
        if (fault := _make(made)) is None:
            made.rename(archive)
        else:
            made.unlink(missing_ok=True)
            progress(f"the archive of Spark's classes {fault}; Spark starts without it, more slowly")


def _archive() -> Path:
    """Return the path of the archive for this Java and Spark, which may not exist."""
    java = subprocess.run(["java", "-version"], capture_output=True, check=False).stderr
    known = hashlib.sha256(java + f"{pyspark.__version__} {pyspark.__file__}".encode()).hexdigest()[:16]
    return cache_root() / f"spark-{known}.jsa"


def _make(archive: Path) -> str | None:
    """Make an archive in other processes, all of which have ended afterwards; return what went wrong, or None."""
    process = subprocess.Popen(
        [sys.executable, "-m", "integration.spark_jvm", str(archive)],
        cwd=Path(__file__).parent.parent,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        stdout=subprocess.PIPE,  # read to its end, when Python and the JVM are gone
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    with process:
        try:
            process.communicate(timeout=LONGEST)
        except BaseException as error:
            # Python, and the JVMs that it has started. Also if the wait is interrupted.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            return f"is not ready after {LONGEST:g} s"
    return None if archive.exists() else f"was not made (exit status {process.returncode})"


class _Numbers(SimpleDataSourceStreamReader):
    """Ten numbers in a batch."""

    def initialOffset(self) -> dict[str, int]:
        return {"n": 0}

    def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[int]], dict[str, int]]:
        return iter([(start["n"] + number,) for number in range(10)]), {"n": start["n"] + 10}

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[tuple[int]]:
        return iter([(number,) for number in range(start["n"], end["n"])])


class _Source(DataSource):
    @classmethod
    def name(cls) -> str:
        return "numbers"

    def schema(self) -> str:
        return "n long"

    def simpleStreamReader(self, schema: Any) -> _Numbers:
        del schema
        return _Numbers()


def main(archive: str) -> None:
    """Run a stream of some batches, and end the JVM, which then writes the archive."""
    spark = new_session(options=f"{LIGHT} -XX:ArchiveClassesAtExit={archive}")
    spark.dataSource.register(_Source)
    with tempfile.TemporaryDirectory() as folder:

        def write(df: DataFrame, number: int) -> None:
            rows = df.persist()
            rows.filter("n > 3").count()
            rows.write.parquet(f"{folder}/out/{number}")
            rows.collect()
            rows.unpersist()

        numbers = spark.readStream.format("numbers").load().mapInArrow(lambda batches: batches, "n long")
        writer = numbers.writeStream.foreachBatch(write).option("checkpointLocation", f"{folder}/checkpoint")
        query = writer.start()
        while len(query.recentProgress) < 3:
            query.awaitTermination(1)
        query.stop()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

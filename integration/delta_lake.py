"""Delta Lake as a sink: its jars, what a session needs for it, and what a table has. Not every Spark has a release."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

from integration.brokers.toolchain import Distribution, fetch, missing

__all__ = ["data_files", "no_release", "settings", "unavailable"]

RELEASES = {"4.2": "4.4.0"}
"""By Spark's version, as far as it is that of a file's name."""
SCALA = "2.13"
OURS = ("delta-", "unitycatalog-", "RoaringBitmap-", "shims-")
"""Beginnings of the names of jars that Spark does not have itself."""


def _spark() -> str:
    return ".".join(version("pyspark").split(".")[:2])


def _distribution() -> Distribution:
    spark = _spark()
    release = RELEASES[spark]
    return Distribution(
        f"delta-{release}-spark-{spark}", (f"io.delta:delta-spark_{spark}_{SCALA}:{release}",)
    )


def no_release() -> str | None:
    """Why there can be no Delta Lake for this Spark, or None."""
    spark = _spark()
    return None if spark in RELEASES else f"no release of Delta Lake is known for Spark {spark}"


def unavailable() -> str | None:
    """Why Delta Lake cannot be had on this machine, or None."""
    return missing(_distribution())


def settings() -> dict[str, str]:
    """What Spark is started with."""
    jars = [path for path in fetch(_distribution()).glob("*.jar") if path.name.startswith(OURS)]
    return {
        "spark.jars": ",".join(map(str, sorted(jars))),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }


def data_files(table: str) -> list[Path]:
    """The Parquet files that are in a table, as its log says."""
    there: set[str] = set()
    for commit in sorted(Path(table, "_delta_log").glob("*.json")):
        for line in commit.read_text(encoding="utf-8").splitlines():
            action = json.loads(line)
            if "add" in action:
                there.add(action["add"]["path"])
            if "remove" in action:
                there.discard(action["remove"]["path"])
    return [Path(table, name) for name in sorted(there)]

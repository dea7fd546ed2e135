"""Delta Lake as a sink: its jars, its settings of a session, and the files of a table. Some Sparks have no release."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

from integration.brokers.toolchain import Distribution, fetch, missing

__all__ = ["data_files", "no_release", "settings", "unavailable"]

RELEASES = {"4.2": "4.4.0"}
"""By the part of Spark's version that is in the name of a jar."""
SCALA = "2.13"
OURS = ("delta-", "unitycatalog-", "RoaringBitmap-", "shims-")
"""First parts of the names of jars that Spark does not include."""


def _spark() -> str:
    return ".".join(version("pyspark").split(".")[:2])


def _distribution() -> Distribution:
    spark = _spark()
    release = RELEASES[spark]
    return Distribution(
        f"delta-{release}-spark-{spark}", (f"io.delta:delta-spark_{spark}_{SCALA}:{release}",)
    )


def no_release() -> str | None:
    """Return why there is no Delta Lake for this Spark, or None."""
    spark = _spark()
    return None if spark in RELEASES else f"no release of Delta Lake is known for Spark {spark}"


def unavailable() -> str | None:
    """Return why Delta Lake cannot be used on this machine, or None."""
    return missing(_distribution())


def settings() -> dict[str, str]:
    """Return the settings with which Spark is started."""
    jars = [path for path in fetch(_distribution()).glob("*.jar") if path.name.startswith(OURS)]
    return {
        "spark.jars": ",".join(map(str, sorted(jars))),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }


def data_files(table: str) -> list[Path]:
    """Return the Parquet files of a table, as in its log."""
    there: set[str] = set()
    for commit in sorted(Path(table, "_delta_log").glob("*.json")):
        for line in commit.read_text(encoding="utf-8").splitlines():
            action = json.loads(line)
            if "add" in action:
                there.add(action["add"]["path"])
            if "remove" in action:
                there.discard(action["remove"]["path"])
    return [Path(table, name) for name in sorted(there)]

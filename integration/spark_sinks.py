"""Sinks of `integration.spark_query`, by name, and the content of each at the end.

`once`: `write_once`. `lines`: appended to a file, whatever the batch id is. `ids`: a file for each batch id, made once,
as Spark recommends. `delta`: a table of Delta Lake, by `txnAppId` and `txnVersion`. `table`: rows and the batch's id in
one transaction of PostgreSQL, or of SQLite. `files`: Spark's own Parquet sink, which the query has instead of
`foreachBatch`. `note` records the content of each run of a batch.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections import Counter, defaultdict
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

import redelivery_spark
from integration.delta_lake import data_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import DataFrame

__all__ = ["FailingSink", "found", "note", "note_begun", "replays", "sink", "tries"]

CREATE = (
    "create table if not exists done (batch bigint primary key)",
    "create table if not exists rows (body varchar(100), batch bigint)",
)


def sink(kind: str, out: str) -> Callable[[DataFrame, int], None]:
    """Return a function for `foreachBatch`. `out`: a path; of a table, a connection string of PostgreSQL, or a path."""

    def write_once(df: DataFrame, batch: int) -> None:
        redelivery_spark.write_once(df, out, batch)

    def lines(df: DataFrame, _: int) -> None:
        with Path(out).open("a", encoding="utf-8") as file:
            file.writelines(f"{row.body}\n" for row in df.collect())

    def ids(df: DataFrame, batch: int) -> None:
        file = Path(out) / f"{batch}.json"
        if not file.exists():
            file.parent.mkdir(exist_ok=True)
            made = file.with_suffix(".made")
            made.write_text(json.dumps([row.body for row in df.collect()]), encoding="utf-8")
            made.rename(file)

    def delta(df: DataFrame, batch: int) -> None:
        writer = df.write.format("delta").mode("append")
        writer.option("txnAppId", Path(out).parent.name).option("txnVersion", batch).save(out)

    def table(df: DataFrame, batch: int) -> None:
        rows = [(row.body, batch) for row in df.collect()]
        if _is_postgres(out):
            _into_postgres(out, rows, batch)
        else:
            _into_sqlite(out, rows, batch)

    return {"once": write_once, "lines": lines, "ids": ids, "delta": delta, "table": table}[kind]


def _is_postgres(out: str) -> bool:
    return out.startswith("host=")


def _into_postgres(out: str, rows: list[tuple[str, int]], batch: int) -> None:
    import psycopg

    with psycopg.connect(out) as connection, connection.cursor() as cursor:
        cursor.execute("insert into done values (%s) on conflict do nothing", (batch,))
        if cursor.rowcount:
            cursor.executemany("insert into rows values (%s, %s)", rows)


def _into_sqlite(out: str, rows: list[tuple[str, int]], batch: int) -> None:
    with closing(sqlite3.connect(out)) as connection, connection:
        for statement in CREATE:
            connection.execute(statement)
        if connection.execute("insert or ignore into done values (?)", (batch,)).rowcount:
            connection.executemany("insert into rows values (?, ?)", rows)


class FailingSink:
    """A second sink: it raises a configured number of times in total, over all starts."""

    def __init__(self, flag: Path, times: int) -> None:
        self._flag = flag
        self._times = times

    def __call__(self, batch: int) -> None:
        """Raise, or do nothing."""
        failed = len(self._flag.read_text(encoding="utf-8")) if self._flag.exists() else 0
        if failed < self._times:
            self._flag.write_text("x" * (failed + 1), encoding="utf-8")
            raise OSError(f"connection reset ({failed + 1} of {self._times}, batch {batch})")


def note_begun(folder: Path, batch: int) -> None:
    """Record that a run of a batch begins."""
    with (folder / "begun").open("a", encoding="utf-8") as file:
        file.write(f"{batch}\n")


def tries(folder: Path) -> int:
    """Return the number of repeated runs of batches."""
    path = folder / "begun"
    begun = Counter(path.read_text(encoding="utf-8").split() if path.exists() else ())
    return begun.total() - len(begun)


def note(folder: Path, batch: int, bodies: list[str]) -> None:
    """Record the rows of a batch in one run."""
    digest = hashlib.sha256("\n".join(sorted(bodies)).encode()).hexdigest()[:16]
    with (folder / "batches").open("a", encoding="utf-8") as file:
        file.write(f"{batch} {len(bodies)} {digest}\n")


def _noted(folder: Path) -> dict[int, list[tuple[int, str]]]:
    """Return the size and a digest of each run, by batch."""
    tries: dict[int, list[tuple[int, str]]] = defaultdict(list)
    path = folder / "batches"
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        batch, size, digest = line.split()
        tries[int(batch)].append((int(size), digest))
    return tries


def replays(folder: Path) -> tuple[int, int]:
    """Return how many batches were written more than once, and how many of those with another content."""
    several = [tries for tries in _noted(folder).values() if len(tries) > 1]
    return len(several), sum(len(set(tries)) > 1 for tries in several)


def found(kind: str, out: str) -> Counter[str]:
    """Return how often a sink has each body."""
    return Counter(_READ[kind](out))


def _lines(out: str) -> list[str]:
    path = Path(out)
    return path.read_text(encoding="utf-8").split() if path.exists() else []


def _ids(out: str) -> Iterator[str]:
    for file in Path(out).glob("*.json"):
        yield from json.loads(file.read_text(encoding="utf-8"))


def _table(out: str) -> list[str]:
    if _is_postgres(out):
        import psycopg

        with psycopg.connect(out) as connection:
            return [row[0] for row in connection.execute("select body from rows")]
    if not Path(out).exists():
        return []
    with closing(sqlite3.connect(out)) as connection:
        for statement in CREATE:
            connection.execute(statement)
        return [row[0] for row in connection.execute("select body from rows")]


def _once(out: str) -> Iterator[str]:
    """Yield the bodies of finished files; files that Spark removes in between are ignored."""
    for folder, inside, names in os.walk(out):
        inside[:] = [name for name in inside if name != "_temporary"]
        for name in names:
            if name.endswith(".parquet"):
                yield from _column(Path(folder, name))


def _delta(out: str) -> Iterator[str]:
    for file in data_files(out):
        yield from _column(file)


def _files(out: str) -> Iterator[str]:
    """Yield the bodies of files in the log of Spark's own sink."""
    log = Path(out) / "_spark_metadata"
    logs = [path for path in log.iterdir() if path.name[0].isdigit()] if log.is_dir() else []
    lines = [line for path in logs for line in path.read_text(encoding="utf-8").splitlines()[1:]]
    for name in {json.loads(line)["path"].rpartition("/")[2] for line in lines}:
        yield from _column(Path(out) / name)


def _column(path: Path) -> list[str]:
    return [str(value) for value in pq.ParquetFile(path).read(columns=["body"]).column("body").to_pylist()]


_READ: Mapping[str, Callable[[str], Any]] = {
    "once": _once, "lines": _lines, "ids": _ids, "delta": _delta, "table": _table, "files": _files
}  # fmt: skip

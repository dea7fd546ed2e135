"""`run`: starts a query again when it fails, unless another start cannot help."""

from __future__ import annotations

import logging
import re
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException

from redelivery.core.delivery import Cause
from redelivery.errors import ConfigurationError
from redelivery_spark.wal.records import Records
from redelivery_spark.wal.store import store_at

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["brief", "brief_error", "run", "was_stopped"]


# ---- Failure text ----------------------------------------------------------------------------------------
# Texts of a query's failures: their essential line, and those that say nothing about the batch.

STOPPED = (
    "java.lang.InterruptedException",
    "java.io.InterruptedIOException",
    "java.nio.channels.ClosedByInterruptException",
    "SPARK_JOB_CANCELLED",
    "cancelled part of cancelled job group",
    "cancelled because SparkContext was shut down",
)
"""Texts in Spark's error of a write that `query.stop()`, or the end of its session, has interrupted."""
# Start of Spark's text about a task that failed, before the task's stage, machine and error.
_LOST = "Lost task "
_TRACEBACK = "Traceback (most recent call last):"
# Text of the error of a worker process that died. Its causes are the read that met the death, which explains nothing.
_DIED = "Python worker exited unexpectedly"
# What Spark puts around an error: the ids of the query, where a stack has its cause, settings, and a code of SQL.
_AROUND = re.compile(
    r"^\[STREAM_FAILED\] Query \[[^\]]*\] terminated with exception: |^Caused by: "
    r"|\. Consider setting .*| SQLSTATE: \w+$"
)
# What Py4J puts before the first line of an error of Java. It names an object of this process, and no cause.
_CALLED = re.compile(r"(?:py4j\.protocol\.Py4JJavaError: )?An error occurred while calling \S+\.\n: ")
# Characters of a failure's text that are stored.
_MOST = 300


def was_stopped(text: str) -> bool:
    """True if a write failed because its query was stopped, or its job cancelled."""
    return any(name in text for name in STOPPED)


def brief_error(error: Exception) -> str:
    """Return the first line of an exception's text: Spark appends plans and stacks to it. Of Java's: as `brief`."""
    said = _of_task(str(error))
    return Cause.of(error).text.split("\n", 1)[0].split("  ", 1)[0][:_MOST] if said is None else _most(said)


def brief(text: str) -> str:
    """Return the most informative line of a Spark error: the last one of a Python traceback, or the first line."""
    said = _of_task(text)
    return _most(text if said is None else said)


def _of_task(text: str) -> str | None:
    """Return the error of the task that made a job fail, without the task's number and machine; or that of Java."""
    _, found, task = text.rpartition(_LOST)
    _, ended, said = task.partition("): ")
    if found and ended:
        return said
    return text if _CALLED.match(text) else None


def _most(text: str) -> str:
    text = _CALLED.sub("", text)
    raised = _raised(text)
    if raised is None:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        errors = [line for line in lines if "Error:" in line or "Exception:" in line]
        died = [line for line in errors if _DIED in line]
        raised = (died or errors or lines[:1] or ["unknown"])[-1]
    return _AROUND.sub("", raised)[:_MOST]


def _raised(text: str) -> str | None:
    """Return the line after the last Python traceback, whatever the name of the exception."""
    _, found, rest = text.rpartition(_TRACEBACK)
    behind = (line for line in rest.splitlines() if line.strip() and not line[0].isspace())
    return next(behind, None) if found else None


# ---- Run -------------------------------------------------------------------------------------------------

logger = logging.getLogger("redelivery.spark")
# Seconds between two starts: doubled after each start in which no batch ended.
FIRST_PAUSE, LAST_PAUSE = 0.5, 30.0
HOPELESS = (
    "redelivery.errors.ConfigurationError:",
    "redelivery.errors.AdapterError:",
    "redelivery_spark.executors.segment_reader.UndecodableBody:",
    "redelivery_spark.wal.checked_file.LogDamaged:",
    "redelivery_spark.wal.store.LogTaken:",
)
"""Errors that another start does not mend, as a Python traceback names them: classes of this package only."""
REFUSED_BY_SPARK = ("[STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY]",)
"""Spark's errors that each start repeats: the query was killed before its first batch, and needs a new checkpoint."""
NOT_OF_THE_BATCH = ("redelivery.errors.TransportError:", "redelivery_spark.stream.stream_reader.LogInUse:")
"""Failures of the source, which say nothing about the rows of a batch or about their sink."""


def run(
    start_query: Callable[[], StreamingQuery], *, max_restarts: int | None = None, wal_dir: str | None = None
) -> StreamingQuery:
    """Run a query, and start it again when it fails; return it once it has ended without error.

    Blocks the calling thread. Each start runs the failed batch again, with the same rows: no message is lost. A row
    over which a process has died twice in `process` is then redelivered alone. The first restart is after 0.5 s. The
    pause is doubled after each failure, up to 30 s, and is 0.5 s again after a start in which a batch ended.

    Args:
        start_query: Starts the query and returns it; it must use the same checkpoint each time.
        max_restarts: Number of restarts after which a failure is raised. None: no limit.
        wal_dir: The source's `walDir`. Failures of the query are marked there, for the option `isolate=split`, unless
            `foreach_batch` has marked them. None: they are not marked.

    Returns:
        The query of the last start, after `stop()` or the end of `availableNow`.

    Raises:
        StreamingQueryException: The query failed once more than `max_restarts`, or with an error that another start
            does not mend, for instance a `ConfigurationError` of the source.
        ConfigurationError: The query tracks its progress asynchronously, or `wal_dir` cannot be a write-ahead log.
    """
    marks = _Marks(wal_dir)
    restarts, pause = 0, 0.0
    while True:
        marks.begin()
        query = start_query()
        _refuse_asynchronous(query)
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            text = str(error)
            if any(name in text for name in (*HOPELESS, *REFUSED_BY_SPARK)):
                raise
            marks.failed(text)
            if restarts == max_restarts:
                raise
            grown = FIRST_PAUSE if _progressed(query) else pause * 2
            pause = min(max(grown, FIRST_PAUSE), LAST_PAUSE)
            restarts += 1
            logger.warning("the query failed (%s); start %d in %.1f s", brief(text), restarts + 1, pause)
            _rest(pause)
        else:
            return query


class _Marks:
    """Marks of failures that `run` makes. An error of the write-ahead log is logged only: the query's own is raised."""

    def __init__(self, wal_dir: str | None) -> None:
        self._records = None if wal_dir is None else Records(store_at(wal_dir))
        self._before: set[str] = set()

    def begin(self) -> None:
        """Note the marks that exist before a start."""
        with _logged():
            self._before = set() if self._records is None else set(self._records.marks())

    def failed(self, text: str) -> None:
        """Mark a failure, unless the sink has marked it, or it says nothing about the batch."""
        if self._records is None or was_stopped(text) or any(name in text for name in NOT_OF_THE_BATCH):
            return
        with _logged():
            if not set(self._records.marks()) - self._before:
                self._records.fail(brief(text))


@contextmanager
def _logged() -> Generator[None]:
    try:
        yield
    except Exception as error:  # noqa: BLE001 - each store has its own
        logger.warning(
            "failures of the query cannot be marked in walDir (%s); isolate=split does not count them",
            Cause.of(error).text,
        )


def _refuse_asynchronous(query: StreamingQuery) -> None:
    """Stop a query whose checkpoint can be older than the write-ahead log: after a crash they would not fit.

    Spark does not report this to a source; only the class of the query shows it.
    """
    wrapped: Any = getattr(query, "_jsq", None)  # None: Spark Connect, or a test
    try:
        kind = str(wrapped.streamingQuery().getClass().getSimpleName())
    except Exception:  # noqa: BLE001 - of Spark's internals: without them the query runs, and a restart can be refused
        return
    if kind.startswith("AsyncProgressTracking"):
        # A query that does not stop in time is no reason to hide the error below.
        with suppress(Exception):
            query.stop()
        raise ConfigurationError(
            "asyncProgressTrackingEnabled: not supported, because after a crash the checkpoint would be older than "
            "walDir; remove it",
            option="asyncProgressTrackingEnabled",
        )


def _rest(pause: float) -> None:
    threading.Event().wait(pause)


def _progressed(query: StreamingQuery) -> bool:
    """True if a batch has ended, also an empty one that `isolate=split` makes: splitting is bounded.

    A batch whose offsets do not advance is Spark's own, for a watermark: each start can have one.
    """
    sources = (source for progress in query.recentProgress for source in progress["sources"])
    return any(source["startOffset"] != source["endOffset"] for source in sources)

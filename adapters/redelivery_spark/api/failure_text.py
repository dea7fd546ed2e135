"""Texts of a query's failures: their essential line, and those that say nothing about the batch."""

from __future__ import annotations

import re

from redelivery.core.delivery import Cause

__all__ = ["brief", "brief_error", "was_stopped"]

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

"""Texts of Spark's failures in the log and in a dead letter."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from redelivery_spark.api.failure_text import brief, brief_error

LOST = (
    "An error occurred while calling o106.collectToPython.\n"
    ": org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 2.0 failed 1 times, "
    "most recent failure: Lost task 0.0 in stage 2.0 (TID 4) (localhost executor driver): "
)
CRASHED = "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed): no output"


def test_a_task_that_failed() -> None:
    """The text of a failed task is its own error, not Spark's about an aborted job."""
    died = f"{LOST}{CRASHED}\n\tat org.apache.spark.api\nCaused by: java.io.EOFException\n\tat java.io\n"
    assert brief(died) == CRASHED
    assert brief_error(RuntimeError(died)) == CRASHED
    traceback = "org.apache.spark.api.python.PythonException: Traceback (most recent call last):"
    raised = f'{LOST}{traceback}\n  File "a"\nValueError: boom\n\n\tat x\n'
    assert brief(raised) == "ValueError: boom"
    refused = raised.replace("ValueError: boom", "PaymentRefused: no card\nand more")
    assert brief(refused) == "PaymentRefused: no card"
    assert brief(raised.replace("ValueError: boom", "AssertionError")) == "AssertionError"


def test_an_error_of_the_driver() -> None:
    """The text is the last error of a traceback, or the first line, and has at most 300 characters."""
    assert brief("Traceback\n  x\nKeyError: a\nDuring …\nValueError: two") == "ValueError: two"
    assert brief("something\nelse") == "something"
    assert brief("no space on /data (disk 2): giving up") == "no space on /data (disk 2): giving up"
    assert brief("") == "unknown"
    assert len(brief("ValueError: " + "x" * 400)) == 300
    assert brief_error(ValueError("of the sink\nand more")) == "ValueError: of the sink and more"

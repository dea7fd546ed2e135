"""Texts of Spark's failures in the log and in a dead letter."""

from __future__ import annotations

import pytest

from redelivery_spark.api.run import brief, brief_error

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


@pytest.mark.parametrize("cause", ["java.io.EOFException", "java.net.SocketException: Connection reset"])
def test_a_process_that_died(cause: str) -> None:
    """The text of a dead worker is that it died, without Spark's advice and the read that failed then."""
    died = f"{CRASHED}. Consider setting 'spark.python.worker.faulthandler.enabled' to 'true'."
    chain = f"{LOST}{died}\n\tat x\nCaused by: {cause}\n\nDriver stacktrace:\n\tat y\nCaused by: {died}\n"
    assert brief(f"{chain}Caused by: {cause}\n\t... 24 more\n") == CRASHED
    assert brief(f"{died}\nCaused by: {cause}\n") == CRASHED


def test_what_spark_puts_around_an_error() -> None:
    """The text has neither the ids of the query nor a code of SQL, which differ from start to start or mean nothing."""
    ended = "[STREAM_FAILED] Query [id = cc33, runId = 4a31] terminated with exception: "
    text = f"{ended}Python worker failed to connect back. SQLSTATE: XXKST\n=== Streaming Query ===\nIdentifier: x"
    assert brief(text) == "Python worker failed to connect back."
    assert brief("job aborted\nCaused by: java.lang.RuntimeException: disk full\n") == (
        "java.lang.RuntimeException: disk full"
    )


def test_an_error_of_java_in_a_sink() -> None:
    """The text of an error of Java is Java's first line, and not that Py4J called something."""
    full = "org.apache.hadoop.fs.ParentNotDirectoryException: Parent path is not a directory: /shared/rows"
    java = f"An error occurred while calling o239.create.\n: {full}\n\tat org.apache.hadoop.fs\n"
    text = f'Traceback (most recent call last):\n  File "a"\npy4j.protocol.Py4JJavaError: {java}\n SQLSTATE: 39000\n'
    assert brief(text) == full
    assert brief_error(RuntimeError(java)) == full


def test_an_error_of_the_driver() -> None:
    """The text is the last error of a traceback, or the first line, and has at most 300 characters."""
    assert brief("Traceback\n  x\nKeyError: a\nDuring …\nValueError: two") == "ValueError: two"
    assert brief("something\nelse") == "something"
    assert brief("no space on /data (disk 2): giving up") == "no space on /data (disk 2): giving up"
    assert brief("") == "unknown"
    assert len(brief("ValueError: " + "x" * 400)) == 300
    assert brief_error(ValueError("of the sink\nand more")) == "ValueError: of the sink and more"

"""`foreach_batch`: the failures of a sink that count against a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import StructField, StructType
from tests.spark.frames import source

from redelivery.errors import ConfigurationError
from redelivery_spark.api.foreach_batch import foreach_batch
from redelivery_spark.wal.records import Records
from redelivery_spark.wal.store import store_at

if TYPE_CHECKING:
    from pathlib import Path


def guard(folder: Path, error: Exception) -> None:
    """Run a sink that fails over batch 4."""
    store_at(str(folder)).prepare("failures")

    def write(*_: object) -> None:
        raise error

    frame: Any = source(folder, "a")
    with pytest.raises(type(error)) as raised:
        foreach_batch(write)(frame, 4)
    assert raised.value is error


def test_a_sink_that_fails_leaves_evidence(tmp_path: Path) -> None:
    """A failure of the sink is marked in the log, and raised."""
    guard(tmp_path, RuntimeError("no space left  and a plan"))
    assert Records(store_at(str(tmp_path))).failures() == ["RuntimeError: no space left"]


def test_a_frame_that_does_not_say_its_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A frame without its walDir, as after an aggregation, is written; a failure is raised, and logged as unmarked."""
    frame: Any = source(tmp_path, "a")
    frame.schema = StructType([StructField(each.name, each.dataType) for each in frame.schema.fields])
    seen: list[int] = []

    def write(_: object, batch: int) -> None:
        seen.append(batch)
        if batch == 5:
            raise RuntimeError("the sink")

    foreach_batch(write)(frame, 4)
    with pytest.raises(RuntimeError, match="the sink"):
        foreach_batch(write)(frame, 5)
    assert seen == [4, 5]
    assert (
        "batch 5: failed, and the failure cannot be marked in walDir (ConfigurationError: foreach_batch:"
        in caplog.text
    )


def test_a_stopped_query_leaves_none(tmp_path: Path) -> None:
    """A write that was interrupted or cancelled is not marked."""
    for said in (
        "An error occurred while calling o1.save.\n: java.lang.InterruptedException",
        "[SPARK_JOB_CANCELLED] Job 5 cancelled part of cancelled job group 7c2a SQLSTATE: XXKDA",
        "Job 5 cancelled because SparkContext was shut down",
    ):
        guard(tmp_path, RuntimeError(said))
    assert Records(store_at(str(tmp_path))).failures() == []


def test_a_mark_that_cannot_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The sink's error is raised, not that of the log."""
    (tmp_path / "failures").write_text("no folder")
    (wal := tmp_path / "wal").mkdir()
    (wal / "failures").mkdir()
    (wal / "failures" / "x").touch()
    frame: Any = source(tmp_path / "none", "a")

    def write(*_: object) -> None:
        raise RuntimeError("the sink")

    with pytest.raises(RuntimeError, match="the sink"):
        foreach_batch(write)(frame, 4)
    assert "batch 4: failed, and the failure cannot be marked in walDir" in caplog.text


def test_a_sink_that_nothing_would_run_is_refused(tmp_path: Path) -> None:
    """A sink that is not callable, or is `async def`, is refused; one that returns a coroutine ends the query."""
    store_at(str(tmp_path)).prepare("failures")

    async def later(*_: object) -> None:
        raise AssertionError

    for write, said in (
        (None, "write=None: not callable"),
        (later, "write= returns a coroutine, which nothing runs"),
    ):
        given: Any = write
        with pytest.raises(ConfigurationError, match=said):
            foreach_batch(given)

    def factory(*given: object) -> object:
        return later(*given)

    frame: Any = source(tmp_path, "a")
    with pytest.raises(ConfigurationError, match="write= returns a coroutine, which nothing runs"):
        foreach_batch(factory)(frame, 4)
    assert Records(store_at(str(tmp_path))).failures() == []

"""`process`: arguments that are refused."""

from __future__ import annotations

import functools
import re
import threading
from typing import TYPE_CHECKING, Any, cast

import pytest
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.types import StructType
from tests.spark.frames import Frame, in_batch, source

from redelivery.errors import ConfigurationError
from redelivery_spark.api.process import process
from redelivery_spark.wal.records import Records
from redelivery_spark.wal.store import store_at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Frame:
    """Two rows, a and b, of batch 3."""
    store_at(str(tmp_path)).prepare("verdicts")
    in_batch(monkeypatch, 3)
    return source(tmp_path, "a", "b")


def apply(frame: object, handler: Any, *more: Any) -> Any:
    """Call `process` with a frame that is no real DataFrame."""
    return process(frame, handler, *more)  # type: ignore[arg-type]


def test_a_handler_that_nothing_would_run_is_refused(rows: Frame, tmp_path: Path) -> None:
    """A handler that is not callable, `async def`, or that yields is refused: no row passes, and none is charged."""

    async def later(_: object) -> None:
        raise AssertionError

    def yielding(_: object) -> Iterator[None]:
        yield

    def factory(_: object) -> object:
        return later(_)

    class AsyncHandler:
        async def __call__(self, row: object) -> None:
            raise AssertionError

    class GeneratorHandler:
        def __call__(self, row: object) -> Iterator[None]:
            return yielding(row)

    refusals: list[tuple[Any, str]] = [
        (None, "handler=None: not callable; give a function of one row"),
        (later, "handler= returns a coroutine, which nothing runs here; write a plain function"),
        (functools.partial(later), "handler= returns a coroutine"),
        (AsyncHandler(), "handler= returns a coroutine"),
        (yielding, "handler= returns a generator, which nothing runs here; it must not yield"),
    ]
    for handler, said in refusals:
        with pytest.raises(ConfigurationError, match=re.escape(said)):
            apply(rows, handler)
    for handler in (factory, GeneratorHandler()):
        with pytest.raises(ConfigurationError, match="which nothing runs here"):
            apply(rows, handler).collect()
    assert store_at(str(tmp_path)).names("verdicts") == []
    assert Records(store_at(str(tmp_path))).settled_by({}, {1: 1})[1] == {}


def test_a_handler_that_cannot_be_pickled_is_named(rows: Frame, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error over a handler that holds a lock names the handler and what cannot be sent to the executors."""
    lock = threading.Lock()

    def write_under_lock(_: Any) -> None:
        with lock:
            pass

    def serialise(_frame: Frame, task: object, _schema: StructType) -> object:
        serializer = cast("Any", CloudPickleSerializer)
        return serializer().dumps(task)

    # As Spark does at once in the call.
    monkeypatch.setattr(Frame, "mapInArrow", serialise)
    with pytest.raises(ConfigurationError, match=r"write_under_lock cannot be sent .*: TypeError: .*lock"):
        apply(rows, write_under_lock)


def test_the_columns_that_it_needs(rows: Frame) -> None:
    """A frame without the place of a row is refused: there can be no verdict."""
    rows.columns = ["message_id", "body"]
    with pytest.raises(ConfigurationError, match="has no column _place and no column delivery_count; keep"):
        apply(rows, str)


def test_a_result_that_is_no_schema(rows: Frame, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has Spark's sentence about the DDL, which begins with an empty line."""

    def refuse(_ddl: str) -> StructType:
        raise ValueError(
            '\n[UNSUPPORTED_DATATYPE] Unsupported data type "STRIN". SQLSTATE: 0A000\n== SQL ==\nid strin'
        )

    monkeypatch.setattr(StructType, "fromDDL", refuse)
    with pytest.raises(
        ConfigurationError, match=r"schema \(\[UNSUPPORTED_DATATYPE\] [^\n]*\"STRIN\"\.\); use DDL"
    ):
        apply(rows, str, "id strin")

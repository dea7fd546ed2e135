"""`run`: failures after which a query is started again, and the pauses."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import pytest
from pyspark.errors import StreamingQueryException

from redelivery.errors import AdapterError, ConfigurationError, TransportError
from redelivery_spark.api.run import HOPELESS, NOT_OF_THE_BATCH, run
from redelivery_spark.executors.segment_reader import UndecodableBody
from redelivery_spark.wal.checked_file import LogDamaged
from redelivery_spark.wal.records import Records
from redelivery_spark.wal.store import LogTaken, store_at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql.streaming.query import StreamingQuery


class Ended:
    """A query that has ended: with an error, or without."""

    def __init__(self, error: str | None, *ends: int) -> None:
        self._error = error
        starts = [0, *ends]
        self.recentProgress = [
            {"sources": [{"startOffset": f'{{"0": {start}}}', "endOffset": f'{{"0": {end}}}'}]}
            for start, end in zip(starts, ends, strict=False)
        ]

    def awaitTermination(self) -> None:
        """As Spark's."""
        if self._error is not None:
            raise StreamingQueryException(self._error)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Pauses that were made, without taking time."""
    made: list[float] = []
    monkeypatch.setattr("redelivery_spark.api.run._rest", made.append)
    return made


def supervise(*queries: Ended, **named: Any) -> Ended:
    """Run queries one after the other."""
    left: Iterator[Ended] = iter(queries)
    return cast("Ended", run(lambda: cast("StreamingQuery", next(left)), **named))


def test_pauses_grow_until_a_batch_ends(pauses: list[float]) -> None:
    """Pauses grow from 0.5 s to 30 s until a batch ends; a batch whose offsets do not advance is Spark's own."""
    last = Ended(None)
    assert (
        supervise(*[Ended("boom", 0) for _ in range(8)], Ended("boom", 0, 5, 5), Ended("boom"), last) is last
    )
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 0.5, 1.0]


def test_our_own_refusals_end_it(pauses: list[float]) -> None:
    """A wrong option, a refusing broker or a taken log end `run`; a class of the same name elsewhere does not."""
    for name in ("redelivery.errors.ConfigurationError", "redelivery.errors.AdapterError",
                 "redelivery_spark.wal.store.LogTaken"):  # fmt: skip
        with pytest.raises(StreamingQueryException, match=name):
            supervise(Ended(f"Traceback …\n{name}: no"))
    assert pauses == []
    for name in (
        "pymongo.errors.ConfigurationError",
        "mine.AdapterError",
        "redelivery_spark.stream.stream_reader.LogInUse",
    ):
        supervise(Ended(f"Traceback …\n{name}: no"), Ended(None))
    assert len(pauses) == 3


def test_a_checkpoint_that_spark_refuses_ends_it(pauses: list[float]) -> None:
    """A checkpoint that Spark refuses ends `run`: each start would fail alike."""
    text = "[STREAM_FAILED] Query terminated: [STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY] should be empty"
    with pytest.raises(StreamingQueryException, match="LOCATION_NOT_EMPTY"):
        supervise(Ended(text))
    assert pauses == []


def test_a_query_is_started_again_so_often(pauses: list[float]) -> None:
    """max_restarts limits the starts after the first one."""
    with pytest.raises(StreamingQueryException, match="third"):
        supervise(Ended("first"), Ended("second"), Ended("third"), Ended(None), max_restarts=2)
    assert len(pauses) == 2


def test_the_names_are_those_of_our_classes() -> None:
    """The names of classes by which `run` recognises failures exist."""
    kinds = (ConfigurationError, AdapterError, UndecodableBody, LogDamaged, LogTaken)
    assert tuple(f"{kind.__module__}.{kind.__qualname__}:" for kind in kinds) == HOPELESS
    assert f"{TransportError.__module__}.{TransportError.__qualname__}:" in NOT_OF_THE_BATCH


def failures(folder: Path, *queries: Ended, **named: Any) -> list[str]:
    """Run queries with a log; return the failures that are marked in it."""
    store_at(str(folder)).prepare("failures")
    with suppress(StreamingQueryException):
        supervise(*queries, wal_dir=str(folder), **named)
    return Records(store_at(str(folder))).failures()


def test_failures_are_marked_in_the_log(tmp_path: Path, pauses: list[float]) -> None:
    """Each failure is marked with its most informative line, also the last one; without a log there are no marks."""
    del pauses
    assert failures(tmp_path, Ended("one"), Ended("Traceback\n  x\nValueError: two"), max_restarts=1) == [
        "one", "ValueError: two",
    ]  # fmt: skip
    supervise(Ended("three"), Ended(None))
    assert len(Records(store_at(str(tmp_path))).failures()) == 2


def test_what_is_not_marked(tmp_path: Path, pauses: list[float]) -> None:
    """A stopped query, an unreachable broker and a refusal by this package are not marked: no batch is the cause."""
    texts = (
        "redelivery.errors.TransportError: no broker",
        "redelivery_spark.stream.stream_reader.LogInUse: busy",
        "java.lang.InterruptedException",
    )
    assert failures(tmp_path, *map(Ended, texts), Ended(None)) == []
    assert failures(tmp_path, Ended("redelivery.errors.ConfigurationError: no")) == []
    assert len(pauses) == 3


def test_a_failure_is_marked_once(tmp_path: Path, pauses: list[float]) -> None:
    """A failure that `foreach_batch` has marked in this run is not marked again; an older mark does not count."""
    del pauses
    records = Records(store_at(str(tmp_path)))

    class Marking(Ended):
        def awaitTermination(self) -> None:
            records.fail("the sink")
            super().awaitTermination()

    found = failures(tmp_path, Marking("seen by the sink"), Ended("not seen"), Ended(None))
    assert found == ["the sink", "not seen"]


def test_a_log_that_cannot_be_marked(
    tmp_path: Path, pauses: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    """A log that cannot be marked is a warning, and the query is started again."""
    last = Ended(None)
    assert supervise(Ended("boom"), last, wal_dir=str(tmp_path / "none")) is last
    assert "failures of the query cannot be marked in walDir" in caplog.text
    assert len(pauses) == 1

"""`run`: what is started again, and after which pause."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import StreamingQueryException

from redelivery.errors import AdapterError, ConfigurationError
from redelivery_spark.api.run import HOPELESS, run
from redelivery_spark.wal.store import LogTaken

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.streaming.query import StreamingQuery


class Ended:
    """A query that has run: with an error, or well."""

    def __init__(self, error: str | None, *rows: int) -> None:
        self._error = error
        self.recentProgress = [{"numInputRows": each} for each in rows]
        self.lastProgress = self.recentProgress[-1] if rows else None

    def awaitTermination(self) -> None:
        """As Spark's."""
        if self._error is not None:
            raise StreamingQueryException(self._error)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that are made, which take no time."""
    made: list[float] = []
    monkeypatch.setattr("redelivery_spark.api.run._rest", made.append)
    return made


def supervise(*queries: Ended, **named: Any) -> Ended:
    """Run queries one after the other."""
    left: Iterator[Ended] = iter(queries)
    return cast("Ended", run(lambda: cast("StreamingQuery", next(left)), **named))


def test_pauses_grow_until_messages_go_through(pauses: list[float]) -> None:
    """An empty batch is no progress: it is how a batch is replayed without its rows."""
    last = Ended(None)
    assert (
        supervise(*[Ended("boom", 0) for _ in range(8)], Ended("boom", 0, 5, 0), Ended("boom"), last) is last
    )
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0, 0.5, 1.0]


def test_our_own_refusals_end_it(pauses: list[float]) -> None:
    """A wrong option, a broker that refuses, a log that is another start's; but no class of the same name elsewhere."""
    for name in ("redelivery.errors.ConfigurationError", "redelivery.errors.AdapterError",
                 "redelivery_spark.wal.store.LogTaken"):  # fmt: skip
        with pytest.raises(StreamingQueryException, match=name):
            supervise(Ended(f"Traceback …\n{name}: no"))
    assert pauses == []
    for name in (
        "pymongo.errors.ConfigurationError",
        "mine.AdapterError",
        "redelivery_spark.stream.startup.LogInUse",
    ):
        supervise(Ended(f"Traceback …\n{name}: no"), Ended(None))
    assert len(pauses) == 3


def test_a_query_is_started_again_so_often(pauses: list[float]) -> None:
    """max_restarts bounds the starts after the first one."""
    with pytest.raises(StreamingQueryException, match="third"):
        supervise(Ended("first"), Ended("second"), Ended("third"), Ended(None), max_restarts=2)
    assert len(pauses) == 2


def test_the_names_are_those_of_our_classes() -> None:
    """What ends `run` is told by the names of classes that exist."""
    kinds = (ConfigurationError, AdapterError, LogTaken)
    assert tuple(f"{kind.__module__}.{kind.__qualname__}:" for kind in kinds) == HOPELESS

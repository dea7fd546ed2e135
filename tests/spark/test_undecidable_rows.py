"""Rows about which `process` can decide nothing: of an earlier batch, or in a job without a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.spark.frames import Frame, in_batch, places, source
from tests.spark.test_process import apply, made, refuses

from redelivery.errors import ConfigurationError
from redelivery_spark.wal.places import parts_of
from redelivery_spark.wal.store import store_at
from redelivery_spark.wal.wal_state import State, States

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Frame:
    """Four rows, a to d, of batch 3."""
    store_at(str(tmp_path)).prepare("verdicts", "failures")
    in_batch(monkeypatch, 3)
    return source(tmp_path, "a", "b", "c", "d")


def test_a_row_of_an_earlier_batch(rows: Frame, tmp_path: Path) -> None:
    """A row that an operator with a state has held back is an error: a decision about it would be ignored."""
    store = store_at(str(tmp_path))
    store.prepare("state", "rows")
    lane, _, number, _ = parts_of(places(tmp_path, "a")[0])
    states = States(store)
    states.publish(State("log", settled={lane: number - 1}), None, ())
    assert made(apply(rows, lambda row: row)) == ["a", "b", "c", "d"]
    states.publish(State("log", settled={lane: number}), None, ())
    with pytest.raises(ConfigurationError, match="process: a row is of an earlier batch, which a join"):
        made(apply(rows, lambda row: row))


def test_a_job_that_belongs_to_no_batch(rows: Frame, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that fails in a job without a batch is not redelivered; the error says why, and `run` ends."""
    in_batch(monkeypatch, None)
    assert made(apply(rows, lambda row: row)) == ["a", "b", "c", "d"]
    with pytest.raises(ConfigurationError, match=r"ValueError: b.*InheritableThread"):
        made(apply(rows, refuses("b")))

"""Crumbs: the row over which a process has died, and the effect of a second death over the same row."""

from __future__ import annotations

import errno
import fcntl
import os
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.frames import Frame, in_batch, places, source
from tests.spark.test_process import apply, made, refused, refuses

from redelivery_spark.executors import crumbs
from redelivery_spark.executors.crumbs import CRUMBS, TaskIdentity, crumb_of, died_over, sweep
from redelivery_spark.wal.records import DIED, Records
from redelivery_spark.wal.store import store_at

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TASK = TaskIdentity(3, "run")


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Frame:
    """Three rows, a, b and c, of batch 3."""
    store_at(str(tmp_path)).prepare("verdicts")
    in_batch(monkeypatch, 3)
    monkeypatch.setattr(crumbs, "_warned", set())
    return source(tmp_path, "a", "b", "c")


def killer(row: Any) -> object:
    """End the process over row b, as a crash does."""
    if row["message_id"] == "b":
        os._exit(9)
    return row


def forked(work: Callable[[], object]) -> int:
    """Run a function in a process of its own, and return its exit status."""
    pid = os.fork()
    if not pid:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_row_over_which_two_processes_died(
    rows: Frame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row is refused before its handler is called a third time; one death changes nothing."""
    run = apply(rows, killer)
    in_batch(monkeypatch, 3, "first")
    assert forked(run.collect) == 9
    assert refused(tmp_path) == {}
    in_batch(monkeypatch, 3, "second")
    assert forked(run.collect) == 9
    in_batch(monkeypatch, 3, "third")
    assert made(run) == ["a", "c"]
    assert refused(tmp_path) == {"b": "the process died 2 times while it handled this message"}
    (refusal,) = Records(store_at(str(tmp_path))).settled_by({}, {1: 1})[1].values()
    assert (refusal.kind, refusal.count) == (DIED, 1)
    assert len(store_at(str(tmp_path)).names(CRUMBS)) == 2
    sweep(store_at(str(tmp_path)), 2)
    assert len(store_at(str(tmp_path)).names(CRUMBS)) == 2
    sweep(store_at(str(tmp_path)), 3)
    assert store_at(str(tmp_path)).names(CRUMBS) == []


def test_deaths_of_others(rows: Frame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deaths of another batch or handler, or of another job of this run of the query (`limit` ends its tasks), do not
    count.
    """
    store = store_at(str(tmp_path))
    for batch, run, stage, name in [(2, "r", 0, "x"), (3, "r", 0, "y"), (3, "r", 1, "x"), (3, "q", 1, "x")]:
        in_batch(monkeypatch, batch, run, stage)
        assert forked(apply(rows, killer, name=name).collect) == 9
    (mark,) = {name.split("-")[1] for name in store.names(CRUMBS) if name.startswith("crumbs/000000000002")}
    (b,) = places(tmp_path, "b")
    assert died_over(store, TaskIdentity(3, "r", 0), mark) == {b: 1}
    assert died_over(store, TaskIdentity(3, "r", 1), mark) == {b: 2}
    assert died_over(store, TaskIdentity(3, "s", 7), mark) == {b: 2}
    assert died_over(store, TaskIdentity(3), mark) == {b: 2}
    assert died_over(store, TaskIdentity(4, "r"), mark) == {}


def test_a_row_that_was_called_good_before(
    rows: Frame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that has passed may be written: it is handled again, and stays in the output."""
    assert made(apply(rows, refuses(), name="x")) == ["a", "b", "c"]
    for run in ("q", "r"):
        in_batch(monkeypatch, 3, run)
        assert forked(apply(rows, killer, name="x").collect) == 9
    in_batch(monkeypatch, 3, "s")
    assert made(apply(rows, refuses(), name="x")) == ["a", "b", "c"]
    assert refused(tmp_path) == {}


@pytest.mark.parametrize(
    ("raised", "left"),
    [(SystemExit, 1), (type("Panic", (BaseException,), {}), 1), (KeyboardInterrupt, 0), (None, 0)],
)
def test_what_is_a_death(rows: Frame, tmp_path: Path, raised: type[BaseException] | None, left: int) -> None:
    """An exception that ends the worker counts as a death; an interrupt at the console does not. Neither makes a
    verdict.
    """

    def handler(row: Any) -> object:
        if raised is not None and row["message_id"] == "b":
            raise raised
        return row

    if raised is None:
        assert made(apply(rows, handler)) == ["a", "b", "c"]
    else:
        with pytest.raises(raised):
            made(apply(rows, handler))
        assert store_at(str(tmp_path)).names("verdicts") == []
    assert len(store_at(str(tmp_path)).names(CRUMBS)) == left


def test_a_living_process_has_not_died(tmp_path: Path) -> None:
    """A process that holds the lock lives; without the lock the row in its crumb counts."""
    store = store_at(str(tmp_path))
    with crumb_of(store, TASK, "aa") as crumb:
        crumb.handling(5)
        assert died_over(store, TASK, "aa") == {}
        crumb.rest()
        crumb.keep()
    assert died_over(store, TASK, "aa") == {}
    with crumb_of(store, TASK, "aa") as crumb:
        crumb.handling(5)
        crumb.keep()
    assert died_over(store, TASK, "aa") == {5: 1}


def test_without_file_locks(
    rows: Frame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without file locks rows are handled without crumbs, and one warning explains the effect."""

    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    for _ in range(2):
        assert made(apply(rows, refuses("a"))) == ["b", "c"]
    assert caplog.text.count("no file locks (No locks available); if the process dies over a message") == 1
    assert store_at(str(tmp_path)).names(CRUMBS) == []


def test_crumbs_of_an_object_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Crumbs of an object store are in the temporary folder, for this user only; the next task removes earlier
    batches'.
    """
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(crumbs, "_warned", set())
    store: Any = store_at("memory://bucket/wal")
    for batch in (2, 3):
        with crumb_of(store, TaskIdentity(batch, "r"), "aa") as crumb:
            crumb.handling(5)
            crumb.keep()
    (folder,) = tmp_path.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert died_over(store, TASK, "aa") == {5: 1}
    assert [each.name[:12] for each in folder.iterdir()] == ["000000000003"]
    sweep(store, 3)
    assert len(list(folder.iterdir())) == 1
    monkeypatch.setattr("os.getuid", lambda: 4711)
    folder.rename(tmp_path / folder.name.replace(f"crumbs-{os.stat(folder).st_uid}", "crumbs-4711"))
    with crumb_of(store, TASK, "aa") as crumb:
        crumb.handling(6)
    assert "belongs to another user" in caplog.text


def test_names_of_others_in_the_folder(tmp_path: Path) -> None:
    """A file that is not a crumb is left alone."""
    (tmp_path / CRUMBS).mkdir()
    for name in ("x", "1-2", ".nfs0001"):
        (tmp_path / CRUMBS / name).touch()
    store = store_at(str(tmp_path))
    assert died_over(store, TASK, "aa") == {}
    sweep(store, 99)
    assert len(list((tmp_path / CRUMBS).iterdir())) == 3

"""Files of a ledger when a process dies in the middle of a write, and when two processes write."""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from tests.ledger.test_sqlite_ledger import A, B, Other, learned, nobody

from redelivery.core.ledger_entry import UNSAID, AttemptMark, Entry
from redelivery.errors import LedgerError
from redelivery.ledger.marks import OtherMarks
from redelivery.ledger.sqlite_ledger import SqliteLedger

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATIENCE = 10  # seconds that a thread may take to get somewhere


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqliteLedger]:
    """Return an open ledger."""
    made = SqliteLedger(tmp_path / "ledger.db")
    made.open(nobody)
    yield made
    made.close(nobody)


def owners(ledger: SqliteLedger) -> int:
    """Return the number of processes that the file names as owners of marks."""
    with closing(sqlite3.connect(ledger.path)) as sql:
        number: int = sql.execute("SELECT count(*) FROM owners").fetchone()[0]
    return number


def test_a_failure_outlives_a_death_in_the_middle_of_its_write(ledger: SqliteLedger) -> None:
    """A process that dies before a failure is in the database leaves its mark: the next process charges it."""
    Other(
        ledger.path,
        "import threading; begun = threading.Event()\n"
        "ledger.write = lambda *_: (begun.set(), threading.Event().wait())\n"
        "ledger.end(ledger.begin(A, 0), A, Entry(1, 'x'), failed=True, keep=False); begun.wait()",
    ).kill()
    entry = learned(ledger, A)
    assert entry is not None
    assert (entry.count, entry.cause, entry.suspect) == (1, UNSAID, False)


def test_no_descriptor_is_closed_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing a ledger closes each descriptor once: gevent's `os.close` raises ValueError for one that is none."""
    plain = os.close

    def close(file: int) -> None:
        if file < 0:
            raise ValueError(f"file descriptor cannot be a negative integer ({file})")
        plain(file)

    ledger = SqliteLedger(tmp_path / "ledger.db")
    ledger.open(nobody)
    monkeypatch.setattr(os, "close", close)
    ledger.close(nobody)
    assert [path.name for path in tmp_path.iterdir() if "marks" in path.name] == []


def test_a_write_that_fails_leaves_the_marks(ledger: SqliteLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Marks of failures stay if the database takes no entries, and are charged when the ledger opens again."""

    def refuse(*_: Any, **__: Any) -> int:
        raise LedgerError("the disk is full")

    monkeypatch.setattr(ledger, "write", refuse)
    ledger.end(ledger.begin(A, 1), A, Entry(2, "x"), failed=True, keep=False)
    ledger._writer.stop()
    assert ledger._marks is not None
    assert OtherMarks(ledger._marks.path).attempts() == [AttemptMark(A, 1, "failed")]
    monkeypatch.undo()
    ledger.close(nobody)
    ledger.open(nobody)
    entry = ledger.look_up(A)
    assert entry is not None
    assert entry.count == 2


def test_what_waits_to_be_written_is_newer_than_what_others_have_written(
    ledger: SqliteLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An entry that this process is about to write is not replaced by another process's change."""
    begun, go_on, write = threading.Event(), threading.Event(), ledger.write

    def held(*arguments: Any) -> None:
        begun.set()
        assert go_on.wait(PATIENCE)
        write(*arguments)

    monkeypatch.setattr(ledger, "write", held)
    ours = Entry(3, "ours", 1.0, 2.0)
    ledger.end(None, A, ours, failed=True, keep=False)
    assert begun.wait(PATIENCE)
    theirs = "ledger.end(None, {}, Entry(1, 'theirs'), failed=True, keep=False); "
    other = Other(ledger.path, f"{theirs.format('A')}{theirs.format('B')}ledger._writer.stop()")
    try:
        ledger.refresh(A)
        assert ledger.look_up(B, fresh=True) == Entry(1, "theirs")
        assert ledger.look_up(A, fresh=True) == ours
    finally:
        go_on.set()
        other.kill()


def test_a_dead_process_is_no_owner_any_more(ledger: SqliteLedger) -> None:
    """A dead process is not named in the file after its marks are settled: look-ups do not read them."""
    for _ in range(3):
        other = Other(ledger.path, "ledger.begin(A, 0)")
        assert owners(ledger) == 2
        other.kill()
        assert learned(ledger, A) is not None
        assert owners(ledger) == 1
        assert not ledger._others


def test_a_process_that_dies_idle_is_an_owner_until_the_ledger_is_opened_next(ledger: SqliteLedger) -> None:
    """The row of a dead process without open attempts is removed when the ledger is opened next.

    No message leads to it before.
    """
    for _ in range(3):
        Other(ledger.path, "").kill()
        assert owners(ledger) == 2  # the opening removed the row before
    ledger.close(nobody)
    ledger.open(nobody)
    assert owners(ledger) == 1
    assert len(list(ledger.path.parent.glob("*-marks-*"))) == 1

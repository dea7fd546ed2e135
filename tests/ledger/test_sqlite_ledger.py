"""Ledger in SQLite: entries that survive a process, and entries that several processes see."""

from __future__ import annotations

import math
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from redelivery.core.ledger_entry import CRASH, Buried, Entry
from redelivery.ledger import Behind, Ledger
from redelivery.ledger.marks import OtherMarks
from redelivery.ledger.sqlite_ledger import SqliteLedger

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

A, B, C = (bytes([n]) * 16 for n in range(1, 4))

# A process that opens the ledger, runs a statement, and lives until its stdin is closed or it is killed.
OTHER = """
import sys
from redelivery.core.ledger_entry import Entry
from redelivery.ledger.sqlite_ledger import SqliteLedger
ledger = SqliteLedger(sys.argv[1])
ledger.open(lambda: None)
A, B, C = (bytes([n]) * 16 for n in range(1, 4))
{}
print("ready", flush=True)
sys.stdin.read()
"""


def nobody() -> None:
    """Ignore the failure of a ledger."""


class Other:
    """Another process with the same ledger."""

    def __init__(self, path: Path, what: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", OTHER.format(what), str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def kill(self) -> None:
        self.process.kill()
        assert self.process.wait() == -signal.SIGKILL
        self.process.communicate()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of the ledger."""
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(path: Path) -> Iterator[SqliteLedger]:
    """Return an open ledger."""
    made = SqliteLedger(path)
    made.open(nobody)
    yield made
    made.close(nobody)


def reopened(ledger: SqliteLedger) -> SqliteLedger:
    """Close the ledger and open it again."""
    ledger.close(nobody)
    ledger.open(nobody)
    return ledger


def learned(ledger: SqliteLedger, key: bytes) -> Entry | None:
    """Look a message up as a consumer does."""
    try:
        return ledger.look_up(key)
    except Behind:
        ledger.refresh(key)
        return ledger.look_up(key, fresh=True)


def test_it_satisfies_the_interface(ledger: SqliteLedger) -> None:
    """A `SqliteLedger` has all methods of the interface."""
    assert isinstance(ledger, Ledger)


def test_a_count_outlives_its_process(ledger: SqliteLedger) -> None:
    """A failure is known after a restart, until its message is settled; its mark is cleared."""
    entry = Entry(1, "ValueError: no", 5.0, 6.0)
    ledger.end(ledger.begin(A, 0), A, entry, failed=True, keep=False)
    assert ledger.look_up(A) == entry
    assert reopened(ledger).look_up(A) == entry
    ledger.end(ledger.begin(A, 1), A, None, failed=False, keep=False)
    assert reopened(ledger).look_up(A) is None


def test_nothing_is_left_beside_it_when_nothing_is_open(ledger: SqliteLedger, path: Path) -> None:
    """The files of marks are removed with their processes."""
    assert len(list(path.parent.glob("*-marks-*"))) == 1
    ledger.end(ledger.begin(A, 0), A, None, failed=False, keep=False)
    ledger.close(nobody)
    assert sorted(found.name for found in path.parent.iterdir()) == ["ledger.db", "ledger.db-board"]
    ledger.open(nobody)


def test_a_handler_that_runs_on_keeps_its_mark(path: Path) -> None:
    """The mark of a handler stays after its connection is closed, until the handler or the process ends."""
    ledger = SqliteLedger(path)
    ledger.open(nobody)
    mark = ledger.begin(A, 0)
    ledger.close(nobody)
    (file,) = path.parent.glob("*-marks-*")
    assert [attempt.key for attempt in OtherMarks(file).attempts()] == [A]
    assert not OtherMarks(file).dead()
    ledger.end(mark, A, None, failed=False, keep=False)
    reopened(ledger).close(nobody)
    assert list(path.parent.glob("*-marks-*")) == []


def test_who_was_alone_at_a_death_is_charged(path: Path, ledger: SqliteLedger) -> None:
    """The only open message of a killed process is charged when it is looked up.

    A look-up of another message does not charge it.
    """
    other = Other(path, "ledger.begin(A, 0)")
    assert learned(ledger, A) == Entry(elsewhere=True)  # it lives
    other.kill()
    assert learned(ledger, B) is None
    entry = learned(ledger, A)
    assert entry is not None
    assert (entry.count, entry.cause, entry.suspect) == (1, CRASH, True)
    assert len(list(path.parent.glob("*-marks-*"))) == 1


def test_of_several_at_a_death_none_is_charged(path: Path, ledger: SqliteLedger) -> None:
    """Several open messages of a killed process are crash suspects, and none is charged.

    This also holds for a process that opens the ledger later.
    """
    Other(
        path,
        "ledger.begin(A, 0); ledger.begin(B, 0); m = ledger.begin(C, 0)\n"
        "ledger.end(m, C, None, failed=False, keep=False)",
    ).kill()
    reopened(ledger)
    assert ledger.look_up(A) == ledger.look_up(B) == Entry(suspect=True)
    assert ledger.look_up(C) is None


def test_what_hangs_is_charged_whatever_else_is_open(path: Path, ledger: SqliteLedger) -> None:
    """A hung attempt is charged when its process ends, and the other open message is charged as the only suspect."""
    Other(path, "ledger.begin(A, 0); ledger.hang(ledger.begin(B, 0))").kill()
    hung, alone = learned(ledger, B), learned(ledger, A)
    assert hung is not None
    assert alone is not None
    assert (hung.count, alone.count) == (1, 1)
    assert str(hung.cause).startswith("timeout")


def test_a_failure_in_another_process_is_seen_at_once(path: Path, ledger: SqliteLedger) -> None:
    """A failure in another process is seen at once: until it is written, its mark shows it."""
    end = "ledger.end(ledger.begin(A, 2), A, Entry(3, 'x'), failed=True, keep=False)"
    what = f"ledger._writer.put = lambda *_: None; {end}"
    other = Other(path, what)
    entry = learned(ledger, A)
    assert entry is not None
    assert entry.count == 3
    other.kill()
    entry = learned(ledger, A)
    assert entry is not None
    assert (entry.count, entry.suspect) == (3, False)


def test_what_is_written_is_seen_by_the_others(path: Path, ledger: SqliteLedger) -> None:
    """A process that writes notifies the others, which query the database only then."""
    other = Other(path, "ledger.end(None, A, Entry(1, 'x'), failed=True, keep=False); ledger._writer.stop()")
    with pytest.raises(Behind):
        ledger.look_up(B)
    assert learned(ledger, B) is None
    assert ledger.look_up(A) == Entry(1, "x")
    other.kill()


def test_a_child_process_does_not_keep_a_dead_parent_alive(path: Path, ledger: SqliteLedger) -> None:
    """A forked child inherits the files, but not the lock."""
    begun = "os.write(w, b'x'), sys.stdin.read(), os._exit(0)"
    child = f"import os; r, w = os.pipe(); pid = os.fork() or ({begun}); os.read(r, 1)"
    what = f"ledger.begin(A, 0); {child}; print(pid, file=open(sys.argv[1] + '.pid', 'w'))"
    other = Other(path, what)
    other.process.kill()
    other.process.wait()
    try:
        entry = learned(ledger, A)
        assert entry is not None
        assert entry.count == 1
    finally:
        os.kill(int((path.parent / "ledger.db.pid").read_text()), signal.SIGKILL)
        other.process.communicate()


def test_the_causes_of_dead_letters_are_kept(ledger: SqliteLedger, path: Path) -> None:
    """The causes of dead letters are kept in order, by destination, and are readable while the ledger is closed."""
    one = Buried("queue://a", "1", "ValueError", 3, 2e9)
    two = Buried("queue://b", None, "crash", 1, 2e9)
    ledger.end(None, A, Entry(3, "ValueError"), failed=True, keep=False)
    ledger.bury(A, one)
    ledger.bury(B, two)
    ledger.bury(C, None)
    reopened(ledger)
    assert ledger.look_up(A) is None
    assert SqliteLedger(path).buried() == [one, two]
    assert ledger.buried("queue://b") == [two]


@pytest.mark.parametrize("wrong", [-50.0, 253402300800.0, math.inf, -math.inf])
def test_a_time_without_a_date_is_written_as_unknown(ledger: SqliteLedger, wrong: float) -> None:
    """A time before 1970 or past the year 9999, of a clock that is wrong, is written as unknown; the count stays."""
    ledger.end(None, A, Entry(2, "x", wrong, wrong), failed=True, keep=False)
    ledger.bury(B, Buried("queue://a", "1", "x", 3, wrong, wrong, wrong))
    reopened(ledger)
    assert ledger.look_up(A) == Entry(2, "x")
    assert ledger.buried() == [Buried("queue://a", "1", "x", 3, 0.0)]


def test_a_time_without_a_date_in_the_file_is_read_as_unknown(ledger: SqliteLedger, path: Path) -> None:
    """A time before 1970 or past the year 9999 that an earlier version wrote is read as unknown; all counts stay."""
    ledger.end(None, A, Entry(2, "x", 1.0, 2.0), failed=True, keep=False)
    ledger.end(None, B, Entry(1, "y", 1.0, 2.0), failed=True, keep=False)
    ledger.bury(C, Buried("queue://a", "1", "x", 3, 1.0, 1.0, 2.0))
    ledger.close(nobody)
    with closing(sqlite3.connect(path)) as sql, sql:
        sql.execute("UPDATE entries SET first = -50.0, last = 1e999 WHERE key = ?", (A,))
        sql.execute("UPDATE dead_letters SET at = -50.0, first = -50.0, last = 1e999")
    ledger.open(nobody)
    assert (ledger.look_up(A), ledger.look_up(B)) == (Entry(2, "x"), Entry(1, "y", 1.0, 2.0))
    assert ledger.buried() == [Buried("queue://a", "1", "x", 3, 0.0)]


def test_it_is_bounded_and_pruned(path: Path) -> None:
    """The oldest entries beyond the limit are removed, and so are those older than `keep`."""
    ledger = SqliteLedger(path, limit=2)
    ledger.open(nobody)
    for key in (A, B, C):
        ledger.end(None, key, Entry(1, "x"), failed=True, keep=False)
        ledger._writer.stop()
        ledger.bury(key, Buried("queue://a", key.hex(), "x", 1, 2e9))
        ledger._writer.stop()
        ledger.end(None, key, Entry(1, "x"), failed=True, keep=False)
    reopened(ledger)
    assert [ledger.look_up(key) is None for key in (A, B, C)] == [True, False, False]
    assert [one.message_id for one in ledger.buried()] == [B.hex(), C.hex()]
    ledger.close(nobody)
    brief = SqliteLedger(path, keep=0)
    brief.open(nobody)
    assert brief.look_up(C) is None
    brief.close(nobody)


def test_connections_of_one_process_share_it(path: Path, ledger: SqliteLedger) -> None:
    """A URL gives one ledger for each file.

    With two objects, each would count the other's attempts as those of another process.
    """
    assert SqliteLedger.at(str(path)) is SqliteLedger.at(f"{path.parent}/./{path.name}")
    with pytest.raises(Exception, match="in use by another SqliteLedger of this process"):
        SqliteLedger(path).open(nobody)


def test_marks_are_used_again(ledger: SqliteLedger) -> None:
    """The places of cleared marks are used again: other processes scan only as many as were ever open at a time."""
    places = {ledger.begin(A, 0) for _ in range(3)}
    for place in places:
        ledger.end(place, A, None, failed=False, keep=False)
    assert {ledger.begin(B, 0) for _ in range(3)} == places
    for place in places:
        ledger.end(place, B, None, failed=False, keep=False)


@pytest.mark.parametrize("wrong", [{"keep": -1}, {"limit": 0}, {"timeout": "x"}])
def test_arguments_that_make_no_sense(path: Path, wrong: dict[str, Any]) -> None:
    """Arguments out of range are refused before any I/O."""
    with pytest.raises(ValueError, match=next(iter(wrong))):
        SqliteLedger(path, **wrong)
    assert list(path.parent.iterdir()) == []

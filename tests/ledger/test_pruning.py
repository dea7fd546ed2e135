"""Pruning: by the order of writes and the ledger's own clock, whatever the system's clock says, and in pieces."""

from __future__ import annotations

import sqlite3
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ledger.test_ledger_files import PATIENCE

from redelivery.core.ledger_entry import Buried, Entry
from redelivery.ledger import pruning
from redelivery.ledger.database import LONGEST_STEP, Database
from redelivery.ledger.sqlite_ledger import GroupCommit, SqliteLedger

if TYPE_CHECKING:
    from pathlib import Path

    from redelivery.errors import LedgerError

DAY, KEEP = 86400.0, 30 * 86400.0
ENTRY = Entry(1, "x", 1.0, 2.0)


class Clock:
    """The system's clock, as a ledger sees it."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return the clock of all ledgers of this test."""
    clock = Clock()
    monkeypatch.setattr("redelivery.ledger.database.time", SimpleNamespace(time=lambda: clock.now))
    return clock


def key(number: int) -> bytes:
    """Return the key of a message."""
    return number.to_bytes(16, "big")


def fill(database: Database, *numbers: int) -> None:
    """Write an entry for each of these messages."""
    with database.writing() as revision:
        for number in numbers:
            database.write(key(number), ENTRY, revision)


def left(database: Database, limit: int, keep: float = KEEP) -> set[int]:
    """Prune; return the numbers of the messages of which something is still known."""
    while database.prune(keep, limit, lambda _: None)[1]:
        pass
    found = database.entries([key(number) for number in range(100)])
    return {int.from_bytes(each, "big") for each in found}


def test_a_clock_that_is_set_back_drops_nothing_new(clock: Clock, tmp_path: Path) -> None:
    """The entries that were written last stay, though the system's clock was a day ahead for the ones before."""
    database = Database(tmp_path / "ledger.db", 5)
    clock.now += DAY
    for number in range(10):
        fill(database, number)
    clock.now -= DAY
    fill(database, 10, 11)
    assert left(database, 3) == {9, 10, 11}
    database.close()


def test_a_jump_forward_drops_nothing(clock: Clock, tmp_path: Path) -> None:
    """A system clock that jumps by a year ages nothing by more than a day; real age still counts."""
    database = Database(tmp_path / "ledger.db", 5)
    fill(database, 1)
    with database.writing():
        database.bury(Buried("queue://a", "1", "x", 1, clock.now))
    clock.now += 365 * DAY
    fill(database, 2)
    assert left(database, 100) == {1, 2}
    assert len(database.buried(None)) == 1
    for _ in range(31):
        clock.now += DAY
        fill(database, 3)
    assert left(database, 100) == {3}
    assert database.buried(None) == []
    database.close()


def test_an_older_ledger_whose_clock_was_wrong_keeps_its_entries(clock: Clock, tmp_path: Path) -> None:
    """A ledger without a clock begins with the system's, and with times of the future as if they were of now."""
    path = tmp_path / "ledger.db"
    database = Database(path, 5)
    fill(database, 1, 2)
    database.close()
    with sqlite3.connect(path) as sql:
        sql.execute("DELETE FROM meta WHERE name IN ('clock', 'seen')")
        sql.execute("UPDATE entries SET written = ? WHERE key = ?", (clock.now + 400 * DAY, key(1)))
    sql.close()
    database = Database(path, 5)
    for _ in range(29):
        clock.now += DAY
        fill(database, 3)
    assert left(database, 100) == {1, 2, 3}
    clock.now += DAY
    fill(database, 3)
    assert left(database, 100) == {3}
    database.close()


@given(st.lists(st.integers(-400, 400), min_size=1, max_size=30))
def test_the_ledgers_clock_goes_on_by_a_day_at_most(
    tmp_path_factory: pytest.TempPathFactory, jumps: list[int]
) -> None:
    """Whatever the system's clock does, the ledger's never goes back, and by a day at most for each write."""
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("redelivery.ledger.database.time", SimpleNamespace(time=lambda: clock.now))
        database = Database(tmp_path_factory.mktemp("clock") / "ledger.db", 5)
        last = database._meta("clock")
        for jump in jumps:
            clock.now += jump * DAY / 10
            fill(database, 1)
            step = database._meta("clock") - last
            assert step == max(0, min(int(jump * DAY / 10), LONGEST_STEP))
            last += step
        database.close()


def test_a_forgotten_message_does_not_push_out_a_count(clock: Clock, tmp_path: Path) -> None:
    """Forgotten messages are removed after an hour, before any count is removed beyond the limit."""
    database = Database(tmp_path / "ledger.db", 5)
    fill(database, 1, 2, 3)
    with database.writing() as revision:
        database.write(key(3), None, revision)
    assert left(database, 3) == {1, 2}
    assert database.changes(-1, 9).entries[key(3)] is None
    clock.now += 3601
    fill(database, 4)
    assert left(database, 3) == {1, 2, 4}
    assert key(3) not in database.changes(-1, 9).entries
    database.close()


def test_a_piece_holds_the_lock_briefly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece ends when its time is up, and others can write before the next one."""
    monkeypatch.setattr(pruning, "CHUNK", 2)
    now = [0.0]

    def later() -> float:
        now[0] += pruning.BRIEF / 3
        return now[0]

    monkeypatch.setattr("redelivery.ledger.pruning.time", SimpleNamespace(perf_counter=later))
    database, other = Database(tmp_path / "ledger.db", 0), Database(tmp_path / "ledger.db", 0)
    fill(database, *range(20))
    lost, more = database.prune(KEEP, 10, reports_nothing)
    assert (lost, more) == (4, True)
    fill(other, 50)
    assert left(database, 10) == {*range(10, 20), 50}
    database.close()
    other.close()


def test_the_entries_are_counted_once_in_a_pruning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All pieces but the first read only what they remove; those that come meanwhile are left to the next pruning."""
    monkeypatch.setattr(pruning, "PIECE", 2)
    database, said = Database(tmp_path / "ledger.db", 0), list[str]()
    fill(database, *range(9))
    assert database.prune(KEEP, 4, reports_nothing) == (2, True)
    fill(database, 50)
    database._sql.set_trace_callback(said.append)
    assert left(database, 4) == {5, 6, 7, 8, 50}
    assert not any("OFFSET" in each or "count(*)" in each for each in said)
    assert left(database, 4) == {6, 7, 8, 50}
    database.close()


def test_two_processes_that_prune_at_once_keep_as_many_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries that another process has removed beyond the limit are not made up for by others."""
    monkeypatch.setattr(pruning, "PIECE", 2)
    database, other = Database(tmp_path / "ledger.db", 0), Database(tmp_path / "ledger.db", 0)
    fill(database, *range(9))
    assert database.prune(KEEP, 4, reports_nothing) == (2, True)
    assert left(other, 4) == {5, 6, 7, 8}
    assert left(database, 4) == {5, 6, 7, 8}
    database.close()
    other.close()


def reports_nothing(_: int) -> None:
    raise AssertionError("reported before the last piece")


def test_the_others_read_all_again_after_the_last_piece(tmp_path: Path) -> None:
    """Removed entries are reported once: a process then reads all entries, and drops those that are gone."""
    database = Database(tmp_path / "ledger.db", 0)
    fill(database, *range(9))
    since = database.revision()
    reported: list[int] = []
    while database.prune(KEEP, 4, reported.append)[1]:
        assert not database.changes(since, 99).whole
    assert reported == [since + 1]
    assert database.changes(since, 99).whole
    assert set(database.changes(since, 99).entries) == {key(n) for n in range(5, 9)}
    database.close()


def test_no_more_than_the_limit_is_read(tmp_path: Path) -> None:
    """A process that opens a ledger that is too large reads the newest entries only."""
    database = Database(tmp_path / "ledger.db", 0)
    for number in range(5):
        fill(database, number)
    assert set(database.changes(-1, 2).entries) == {key(3), key(4)}
    database.close()


class Slow:
    """Files whose pruning takes three pieces; entries come meanwhile."""

    limit = 10

    def __init__(self) -> None:
        self.done: list[str] = []
        self.writer = GroupCommit(self)
        self.over = threading.Event()

    def write(self, entries: dict[bytes, Entry | None], _: list[Buried]) -> None:
        """Note it."""
        self.done.append(f"write {len(entries)}")

    def prune(self) -> tuple[int, bool]:
        """Note it; after the first piece a failure comes."""
        self.done.append("prune")
        pieces = self.done.count("prune")
        if pieces == 1:
            self.writer.put(key(2), ENTRY, None)
        if pieces == 3:
            self.over.set()
        return 1, pieces < 3

    def written(self, marks: list[int]) -> None:
        """Nothing is marked here."""

    def fail(self, error: BaseException) -> LedgerError:
        """Nothing fails here."""
        raise AssertionError(error)


def test_a_failure_does_not_wait_until_all_is_pruned(caplog: pytest.LogCaptureFixture) -> None:
    """A failure that comes during a pruning is written after the piece, and one line reports all that was removed."""
    files = Slow()
    files.writer.put(key(1), ENTRY, None)
    assert files.over.wait(PATIENCE)
    files.writer.stop()
    assert files.done == ["write 1", "prune", "write 1", "prune", "prune"]
    (line,) = caplog.messages
    assert "removed the counts of the 3 oldest" in line


@pytest.mark.parametrize("end", ["", "-wal", "-board", "-marks-*"])
@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_is_removed_under_a_ledger_is_named(tmp_path: Path, end: str, replaced: bool) -> None:
    """If a file is removed or replaced, the next attempt and the next failure say which, and counting stops."""
    path = tmp_path / "ledger.db"
    stopped: list[int] = []
    for step in ("begin", "write"):
        ledger = SqliteLedger(path)
        failed = lambda: stopped.append(1)  # noqa: E731 - the ledger knows it by identity
        ledger.open(failed)
        (file,) = tmp_path.glob(f"ledger.db{end}")
        file.rename(tmp_path / "elsewhere")
        if replaced:
            file.write_bytes((tmp_path / "elsewhere").read_bytes())
        if step == "begin":
            with pytest.raises(
                Exception, match=f"its file {file.name} was removed or replaced while it was in use"
            ):
                ledger.begin(key(1), 0)
        else:
            ledger.end(None, key(1), ENTRY, failed=True, keep=False)
            ledger._writer.stop()
        assert f"its file {file.name} was removed" in str(ledger.error)
        ledger.close(failed)
        for each in tmp_path.iterdir():
            each.unlink()
    assert stopped == [1, 1]


def test_the_oldest_are_looked_at_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With more entries than one piece looks at, those beyond the limit are removed, the oldest ones."""
    monkeypatch.setattr(pruning, "PIECE", 2)
    database = Database(tmp_path / "ledger.db", 5)
    for number in range(10):
        fill(database, number)
    assert left(database, 3) == {7, 8, 9}
    database.close()

"""SQLite file of a ledger: entries by key, causes of dead letters, names of processes with marks.

The age of an entry counts by a clock of the ledger's own. It goes on with the system's clock at each write, by a day at
most, and never back. A system clock that was wrong for a while therefore ages nothing by more than a day.
"""

from __future__ import annotations

import errno
import sqlite3
import time
import weakref
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from redelivery.core.ledger_entry import Buried, Entry
from redelivery.errors import LedgerError
from redelivery.ledger.files import make_private
from redelivery.ledger.marks import COUNT_LIMIT
from redelivery.ledger.pruning import Newest, remove, stale

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from pathlib import Path

__all__ = ["APPLICATION", "Changes", "Database", "buried_in", "explained"]

APPLICATION = 0x52444C56
_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS entries (
    key BLOB PRIMARY KEY, count INTEGER NOT NULL, cause TEXT, first REAL, last REAL,
    poisoned INTEGER NOT NULL, suspect INTEGER NOT NULL, revision INTEGER NOT NULL, written REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS entries_by_revision ON entries (revision);
CREATE INDEX IF NOT EXISTS entries_forgotten ON entries (revision) WHERE count = 0 AND poisoned = 0 AND suspect = 0;
CREATE TABLE IF NOT EXISTS owners (name TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS dead_letters (
    number INTEGER PRIMARY KEY, destination TEXT NOT NULL, message_id TEXT, cause TEXT NOT NULL,
    count INTEGER NOT NULL, at REAL NOT NULL, first REAL, last REAL, written REAL
);
CREATE INDEX IF NOT EXISTS dead_letters_by_message ON dead_letters (destination, message_id);
INSERT OR IGNORE INTO meta VALUES ('revision', 0), ('pruned', 0);
"""
_UPSERT = """
INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET
    count = max(count, excluded.count), cause = excluded.cause, first = coalesce(first, excluded.first),
    last = excluded.last, poisoned = max(poisoned, excluded.poisoned), suspect = excluded.suspect,
    revision = excluded.revision, written = excluded.written
"""
_FORGET = """
UPDATE entries SET count = 0, cause = NULL, first = NULL, last = NULL, poisoned = 0, suspect = 0,
    revision = ?, written = ? WHERE key = ?
"""
_BURIED = ("destination", "message_id", "cause", "count", "at", "first", "last")
# Seconds by which the ledger's clock goes on at most, between two writes.
LONGEST_STEP = 86400
# Seconds since the Unix epoch: the year 9999, past which Python has no dates.
_LAST = 253402300800.0


class Changes(NamedTuple):
    """Entries written since a revision. `whole`: these are all entries that there are."""

    revision: int
    entries: dict[bytes, Entry | None]
    owners: list[str]
    whole: bool


class Database:
    """Connection to the file. The caller makes sure that one thread uses it at a time."""

    def __init__(self, path: Path, timeout: float) -> None:
        """Open it, and create missing tables. Raises sqlite3.Error, LedgerError."""
        self._path = path
        # The ledger's clock at the last write, in seconds.
        self._clock = 0
        # True while what other processes have read of the removed entries is not taken back.
        self._untold = False
        # `Stale.newest` of an unfinished pruning.
        self._newest: Newest = None
        make_private(path)
        self._sql = sqlite3.connect(path, timeout=timeout, isolation_level=None, check_same_thread=False)
        # A ledger can stay open for ever: with the mark of a handler whose event loop was closed, which never ends.
        weakref.finalize(self, self._sql.close).atexit = False
        try:
            self._prepare()
        except BaseException:
            self._sql.close()
            raise

    def _prepare(self) -> None:
        application = self._sql.execute("PRAGMA application_id").fetchone()[0]
        tables = self._sql.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if tables and application != APPLICATION:
            raise LedgerError(
                f"the ledger {self._path} is the database of another program; name another file"
            )
        self._sql.execute("PRAGMA journal_mode = WAL")
        # A power failure may cost the last writes; the death of a process costs none.
        self._sql.execute("PRAGMA synchronous = NORMAL")
        self._sql.execute("BEGIN IMMEDIATE")
        try:
            for statement in _SCHEMA.split(";\n"):
                self._sql.execute(statement)
            # Older ledgers do not have these columns, and no clock.
            for name in ("first", "last", "written"):
                if name not in _columns(self._sql):
                    self._sql.execute(f"ALTER TABLE dead_letters ADD COLUMN {name} REAL")
            self._start_clock()
            self._sql.execute(f"PRAGMA application_id = {APPLICATION}")
            self._sql.execute("COMMIT")
        except BaseException:
            self._rollback()
            raise
        found = self._sql.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise _damaged(self._path)

    def _start_clock(self) -> None:
        """Begin the clock of a new ledger, or of an older one, whose times are of a system clock that may be wrong."""
        if self._sql.execute("SELECT 1 FROM meta WHERE name = 'clock'").fetchone() is not None:
            return
        now = int(time.time())
        newest = self._sql.execute("SELECT max(written) FROM entries").fetchone()[0]
        clock = now if newest is None else min(now, int(newest))
        self._sql.execute("INSERT INTO meta VALUES ('clock', ?), ('seen', ?)", (clock, now))
        self._sql.execute("UPDATE entries SET written = ? WHERE written > ?", (clock, clock))
        self._sql.execute("UPDATE dead_letters SET written = min(at, ?)", (clock,))

    def _tick(self) -> None:
        now, clock, seen = int(time.time()), self._meta("clock"), self._meta("seen")
        if now != seen:
            clock += min(max(now - seen, 0), LONGEST_STEP)
            self._sql.execute(
                "UPDATE meta SET value = CASE name WHEN 'clock' THEN ? ELSE ? END WHERE name IN ('clock', 'seen')",
                (clock, now),
            )
        self._clock = clock

    def _rollback(self) -> None:
        with suppress(sqlite3.Error):
            if self._sql.in_transaction:
                self._sql.execute("ROLLBACK")

    @contextmanager
    def _alone(self) -> Generator[None]:
        self._sql.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._sql.execute("COMMIT")
        except BaseException:
            self._rollback()
            raise

    @contextmanager
    def writing(self) -> Generator[int]:
        """Write as the only process that does; the value of the block is the new revision."""
        with self._alone():
            self._tick()
            revision = self.revision() + 1
            self._sql.execute("UPDATE meta SET value = ? WHERE name = 'revision'", (revision,))
            yield revision

    def revision(self) -> int:
        """Return the number of the last change."""
        return self._meta("revision")

    def _meta(self, name: str) -> int:
        value: int = self._sql.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()[0]
        return value

    def changes(self, since: int, limit: int) -> Changes:
        """Return the changes since a revision, the newest `limit`; all entries, if a change after it was pruned."""
        self._sql.execute("BEGIN")
        try:
            whole = since < self._meta("pruned")
            rows = self._sql.execute(
                "SELECT key, count, cause, first, last, poisoned, suspect FROM entries WHERE revision > ? "
                "ORDER BY revision DESC LIMIT ?",
                (0 if whole else since, limit),
            )
            entries = {key: self._entry(key, values) for key, *values in rows}
            owners = [name for (name,) in self._sql.execute("SELECT name FROM owners")]
            return Changes(self.revision(), entries, owners, whole)
        finally:
            self._rollback()

    def entries(self, keys: Iterable[bytes]) -> dict[bytes, Entry]:
        """Return the entries of these messages, by key."""
        sql = "SELECT count, cause, first, last, poisoned, suspect FROM entries WHERE key = ?"
        rows = ((key, self._sql.execute(sql, (key,)).fetchone()) for key in keys)
        return {key: entry for key, row in rows if row and (entry := self._entry(key, row)) is not None}

    # Inside of `writing`.

    def write(self, key: bytes, entry: Entry | None, revision: int) -> None:
        """Write an entry; None: forget the message."""
        if entry is None:
            self._sql.execute(_FORGET, (revision, self._clock, key))
            return
        times = _dated(entry.first), _dated(entry.last)
        values = (entry.count, entry.cause, *times, entry.poisoned, entry.suspect)
        self._sql.execute(_UPSERT, (key, *values, revision, self._clock))

    def bury(self, buried: Buried) -> None:
        """Keep the cause of a dead letter."""
        values = (getattr(buried, name) for name in _BURIED[:-3])
        times = _dated(buried.at) or 0.0, _dated(buried.first), _dated(buried.last)
        marks = ", ".join("?" * (len(_BURIED) + 1))
        self._sql.execute(
            f"INSERT INTO dead_letters ({', '.join(_BURIED)}, written) VALUES ({marks})",  # noqa: S608 - names of our own
            (*values, *times, self._clock),
        )

    def own(self, name: str) -> None:
        """Add the name of a process's marks."""
        self._sql.execute("INSERT INTO owners VALUES (?)", (name,))

    def disown(self, name: str) -> None:
        """Remove the name of a process's marks."""
        self._sql.execute("DELETE FROM owners WHERE name = ?", (name,))

    def owners(self) -> list[str]:
        """Return the names of all marks."""
        return [name for (name,) in self._sql.execute("SELECT name FROM owners")]

    # Not inside of `writing`.

    def prune(self, keep: float, limit: int, report: Callable[[int], None]) -> tuple[int, bool]:
        """Remove a piece of the entries that are older than `keep` seconds, and of the oldest beyond `limit`.

        Args:
            keep: Seconds, by the ledger's clock.
            limit: Most entries, and most causes.
            report: Called inside of `writing` with a new revision.

        Returns:
            The number of counts that were removed beyond `limit`, and whether there may be more to remove.
        """
        rows = stale(self._sql, self._meta("clock"), keep, limit, self._newest)
        self._newest = rows.newest if rows.some else None
        if rows.some:
            with self._alone():
                removed = remove(self._sql, rows)
                self._note_pruned(removed.revision)
            self._untold = self._untold or bool(removed.old or removed.beyond)
            return removed.beyond, True
        if self._untold:
            # The others read all entries again: after the last piece, not after each one.
            with self.writing() as revision:
                self._note_pruned(revision)
                report(revision)
            self._untold = False
        return 0, False

    def _note_pruned(self, revision: int) -> None:
        self._sql.execute("UPDATE meta SET value = max(value, ?) WHERE name = 'pruned'", (revision,))

    def buried(self, destination: str | None) -> list[Buried]:
        """Return the causes that are kept, oldest first."""
        return buried_in(self._sql, self._path, destination)

    def _entry(self, key: object, row: Iterable[object]) -> Entry | None:
        """Return a row as an entry. Raises LedgerError for a wrong type: SQLite does not check types."""
        count, cause, first, last, poisoned, suspect = row
        times = _is_time(first) and _is_time(last)
        if not (isinstance(key, bytes) and _is_count(count) and _is_text(cause) and times):
            raise _damaged(self._path)
        if not (count or poisoned or suspect):
            return None
        return Entry(count, cause, _dated(first), _dated(last), bool(poisoned), bool(suspect))  # type: ignore[arg-type]  # checked

    def close(self) -> None:
        """Close the file."""
        with suppress(sqlite3.Error):
            self._sql.close()


def _damaged(path: Path) -> LedgerError:
    return LedgerError(f"the ledger {path} {_DAMAGED}")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and 0 <= value <= COUNT_LIMIT


def _is_time(value: object) -> bool:
    return value is None or isinstance(value, float)


def _dated(value: float | None) -> float | None:
    """Return a time; None: not known, or without a date, as that of a clock which stood before 1970 is.

    A time that an earlier version wrote by such a clock is read as unknown: it is no damage, and all counts stay.
    """
    return value if value is not None and 0 <= value < _LAST else None


def _is_text(value: object) -> bool:
    return value is None or isinstance(value, str)


def buried_in(sql: sqlite3.Connection, path: Path, destination: str | None) -> list[Buried]:
    """Return the causes that a database keeps, oldest first. Raises LedgerError, sqlite3.Error."""
    there = _columns(sql)
    names = ", ".join(name if name in there else f"NULL AS {name}" for name in _BURIED)
    where = "" if destination is None else "WHERE destination = ?"
    query = f"SELECT {names} FROM dead_letters {where} ORDER BY number"  # noqa: S608 - names of our own
    # The file may contain anything: rows are checked against the types of `Buried` before they become one.
    wanted = () if destination is None else (destination,)
    rows: list[tuple[object, ...]] = sql.execute(query, wanted).fetchall()
    if not all(map(_is_sound, rows)):
        raise _damaged(path)
    return [_buried(row) for row in rows]


def _buried(row: Any) -> Buried:
    place, message_id, cause, count, *times = row
    at, first, last = map(_dated, times)
    return Buried(place, message_id, cause, count, at or 0.0, first, last)


def _is_sound(row: tuple[object, ...]) -> bool:
    place, message_id, cause, count, at, first, last = row
    texts = isinstance(place, str) and isinstance(cause, str) and _is_text(message_id)
    return texts and _is_count(count) and at is not None and all(map(_is_time, (at, first, last)))


def _columns(sql: sqlite3.Connection) -> set[str]:
    return {row[1] for row in sql.execute("PRAGMA table_info(dead_letters)")}


_LOCKED = "has been locked by another program for {timeout:g} s; end that program, or name another file"
_NO_SPACE = "cannot grow: its disk is full"
_READ_ONLY = "cannot be written: it, or its directory, is read-only"
_CANNOT_OPEN = "cannot be opened: its directory must exist, and be writable"
_DAMAGED = "is damaged; move it and the files beside it away; counts then start at 0"
# By SQLite's primary result code.
_BY_RESULT = {
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_FULL: _NO_SPACE,
    sqlite3.SQLITE_READONLY: _READ_ONLY,
    sqlite3.SQLITE_CANTOPEN: _CANNOT_OPEN,
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: "is not an SQLite database; name another file",
}
# By the operating system's error number.
_BY_ERRNO = {
    errno.ENOSPC: _NO_SPACE,
    errno.EROFS: _READ_ONLY,
    errno.EACCES: "cannot be written: no permission",
    errno.ENOENT: _CANNOT_OPEN,
    errno.ELOOP: "cannot be opened: a file beside it is a symbolic link, which is not followed",
}
# Windows has no such code.
if hasattr(errno, "EDQUOT"):
    _BY_ERRNO[errno.EDQUOT] = "cannot grow: the quota of its disk is used up"


def explained(path: Path, error: BaseException, timeout: float) -> LedgerError:
    """Return what is wrong with the ledger, in one sentence."""
    if isinstance(error, LedgerError):
        return error
    sentence: str | None = None
    if isinstance(error, sqlite3.Error):
        # Missing if Python's module raised the error, not SQLite. The primary code is the lowest byte.
        sentence = _BY_RESULT.get(getattr(error, "sqlite_errorcode", 0) & 0xFF)
    elif isinstance(error, OSError) and error.errno is not None:
        sentence = _BY_ERRNO.get(error.errno)
    if sentence is None:
        return LedgerError(f"the ledger {path} fails: {error}")
    return LedgerError(f"the ledger {path} {sentence.format(timeout=timeout)}")

"""Damaged ledger files: the ledger works, or raises an error of one sentence.

The first byte of an input is its kind: `D` a database, `W` its write-ahead log, `B` the board, `M` the marks of another
process, `S` statements of SQL that another program has run on the database.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shutil
import sqlite3
import tempfile
import threading
from pathlib import Path

from tests.fuzz.target import Target

from redelivery.core.ledger_entry import KEY, Buried, Entry
from redelivery.errors import LedgerError
from redelivery.ledger.interface import Behind
from redelivery.ledger.sqlite_ledger import SqliteLedger

__all__ = ["TARGETS"]

_KEYS = [bytes([number]) * KEY for number in range(3)]
_MARKS = (65536 * 24,)
_STATEMENTS = (
    b"UPDATE entries SET count = 'x';", b"UPDATE entries SET cause = x'00ff';", b"UPDATE entries SET first = 'soon';",
    b"UPDATE meta SET value = 9223372036854775807;", b"UPDATE meta SET value = 'x';", b"DELETE FROM meta;",
    b"DROP TABLE owners;", b"INSERT INTO owners VALUES ('../../etc/passwd');", b"INSERT INTO owners VALUES (x'00');",
    b"UPDATE dead_letters SET at = 'x', destination = x'ff';", b"ALTER TABLE entries RENAME COLUMN count TO total;",
    b"CREATE TRIGGER t AFTER INSERT ON entries BEGIN DELETE FROM entries; END;", b"PRAGMA user_version = 7;",
    b"UPDATE entries SET key = 'text';", b"UPDATE entries SET count = 1e300;", b"UPDATE entries SET count = -5;",
    b"CREATE VIEW v AS SELECT * FROM entries;", b"DROP TABLE entries;", b"DROP TABLE dead_letters;",
    b"INSERT INTO owners VALUES ('ledger.db-marks-0000000000000000');", b"PRAGMA application_id = 5;",
    b"UPDATE entries SET cause = CAST(x'ff' AS TEXT);", b"UPDATE dead_letters SET cause = CAST(x'ff' AS TEXT);",
    b"UPDATE owners SET name = 'ledger.db';", b"UPDATE owners SET name = CAST(x'ff' AS TEXT);",
    b"UPDATE entries SET revision = 99, written = 'x';",
)  # fmt: skip
_DICTIONARY = (
    *_STATEMENTS, b"SQLite format 3\0", b"entries", b"owners", b"meta", b"count", b"cause", b"key", b"first", b"x''",
    b"NULL", b"1e999", b"zeroblob(100)", b"CAST(x'ff' AS TEXT)", b"CREATE TABLE", b"BLOB", b"TEXT", b"INTEGER",
    b"\xff" * 16, b"\0" * 16, b"ledger.db-marks-0000000000000000",
)  # fmt: skip


@functools.cache
def _folder(pid: int) -> Path:
    """Return a folder of this process, in memory if the system has such a folder."""
    del pid
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="redelivery-fuzz-", dir=memory if memory.is_dir() else None))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@functools.cache
def _whole() -> bytes:
    """Return a ledger with a few entries and causes, in small pages."""
    folder = Path(tempfile.mkdtemp())
    try:
        path = folder / "ledger.db"
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as sql:
            sql.execute("PRAGMA page_size = 512")
            sql.execute("VACUUM")
        ledger = SqliteLedger(path)
        ledger.open(print)
        for number, key in enumerate(_KEYS):
            entry = Entry(number, f"ValueError: {number}", 1.0, 2.0, number == 1, number == 2)
            ledger.end(ledger.begin(key, 0), key, entry, failed=True, keep=False)
            ledger.bury(bytes(KEY), Buried("queue://a", f"ID:{number}", "cause", 2, 1.7e9, 1.0, None))
        ledger.close(print)
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as sql:
            sql.execute("PRAGMA journal_mode = DELETE")
        return path.read_bytes()
    finally:
        shutil.rmtree(folder)


def seeds() -> list[bytes]:
    """Return one input of each kind, and each statement."""
    marks = (2).to_bytes(8, "little") + bytes(16)
    marks += b"".join(
        key + bytes([1, 0, 0, 0, state, 0, 0, 0]) for key, state in zip(_KEYS, (1, 2, 3), strict=True)
    )
    return [
        b"D" + _whole(),
        b"B" + bytes(8),
        b"M" + marks,
        b"W" + bytes(64),
        *(b"S" + each for each in _STATEMENTS),
    ]


def _put(folder: Path, kind: bytes, data: bytes) -> Path:
    for left in folder.iterdir():
        # The last connection that is closed removes `-wal` and `-shm`. That may be one of the input before.
        left.unlink(missing_ok=True)
    path = folder / "ledger.db"
    path.write_bytes(data if kind == b"D" else _whole())
    if kind == b"W":
        Path(f"{path}-wal").write_bytes(data)
    elif kind == b"B":
        Path(f"{path}-board").write_bytes(data)
    elif kind == b"M":
        marks = folder / "ledger.db-marks-0000000000000000"
        marks.write_bytes(data)
        # A truncated page is another fault than a damaged one.
        if len(data) % 2:
            os.truncate(marks, _MARKS[0])
        _spoil(path, "INSERT INTO owners VALUES ('ledger.db-marks-0000000000000000')")
    elif kind == b"S":
        _spoil(path, data.decode("utf-8", "replace"))
    return path


def _authorized(action: int, *_: str | None) -> int:
    return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_ATTACH else sqlite3.SQLITE_OK


def _spoil(path: Path, statements: str) -> None:
    """Run statements, each on its own. They cannot touch another file, and cannot run long."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as sql:
        sql.set_authorizer(
            lambda action, *_: sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_ATTACH else sqlite3.SQLITE_OK
        )
        sql.set_progress_handler(lambda: 1, 100_000)
        for statement in statements.split(";"):
            with contextlib.suppress(sqlite3.Error, sqlite3.Warning, ValueError):
                sql.execute(statement if "END" not in statement else f"{statement};")


def check(data: bytes) -> None:
    """View a ledger, open it, count, and close it."""
    path = _put(_folder(os.getpid()), data[:1], data[1:])
    died: list[threading.ExceptHookArgs] = []
    before, threading.excepthook = threading.excepthook, died.append
    try:
        _look(path)
        ledger = SqliteLedger(path, timeout=0.01)
        try:
            ledger.open(_ignore)
        except LedgerError:
            pass
        else:
            try:
                _count(ledger)
            except LedgerError:
                assert ledger.error is not None
            finally:
                ledger.close(_ignore)
        _look(path)
    finally:
        threading.excepthook = before
    assert died == [], died


def _ignore() -> None:
    """Ignore the report that the ledger fails."""


def _look(path: Path) -> None:
    with contextlib.suppress(LedgerError):
        for buried in SqliteLedger(path, timeout=0.01).buried():
            assert isinstance(buried.destination, str), buried
            assert isinstance(buried.cause, str), buried
            assert isinstance(buried.message_id, str | None), buried
            assert isinstance(buried.count, int), buried
            assert all(isinstance(at, float | None) for at in (buried.first, buried.last)), buried
            assert isinstance(buried.at, float), buried


def _count(ledger: SqliteLedger) -> None:
    for key in _KEYS:
        try:
            entry = ledger.look_up(key)
        except Behind:
            ledger.refresh(key)
            entry = ledger.look_up(key, fresh=True)
        if entry is not None:
            assert isinstance(entry.count, int), entry
            assert entry.count >= 0, entry
            assert isinstance(entry.cause, str | None), entry
            assert isinstance(entry.first, float | None), entry
            assert isinstance(entry.last, float | None), entry
        mark = ledger.begin(key, entry.count if entry is not None else 0)
        ledger.end(mark, key, Entry(1, "cause", 1.0, 2.0), failed=True, keep=False)
    ledger.bury(_KEYS[0], Buried("queue://a", "ID:9", "cause", 2, 1.7e9))


TARGETS = (
    Target(name="ledger", check=check, seeds=seeds, dictionary=_DICTIONARY, isolated=True, longest=20000, quick=40),
)  # fmt: skip

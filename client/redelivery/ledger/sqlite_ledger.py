"""Ledger in SQLite: counts in a database, marks in memory-mapped files beside it.

Beside `orders.db` are its `-wal` and `-shm`; `orders.db-board`, which has the number of the last change; and
one `orders.db-marks-…` for each process. The board shows a process, without a query, that another one has
written.
"""

from __future__ import annotations

import glob
import mmap
import os
import secrets
import sqlite3
import threading
import time
import weakref
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from redelivery.core.ledger_entry import after_death, counted
from redelivery.core.option_values import seconds, whole
from redelivery.errors import LedgerError
from redelivery.ledger.database import APPLICATION, Database, buried_in, explained
from redelivery.ledger.files import OpenFiles, check_local, open_beside
from redelivery.ledger.interface import Behind
from redelivery.ledger.marks import Marks, OtherMarks
from redelivery.log import logger

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from redelivery.core.ledger_entry import Buried, Entry

__all__ = ["GroupCommit", "SqliteLedger", "look"]


# ---- Group commit ----------------------------------------------------------------------------------------
# Group commit: one thread writes all entries that were put during its last write.

# Seconds that the first entry of a batch waits for others.
COMPANY = 0.002
# Seconds between two prunings, while anything is written, and between two pieces of one: others take the lock then.
PRUNE, PAUSE = 300.0, 0.02


class CommittedFiles(Protocol):
    """Interface of the files that the thread writes to; `SqliteLedger` implements it."""

    limit: int

    def write(self, entries: dict[bytes, Entry | None], buried: list[Buried]) -> None:
        """Write in one transaction."""

    def prune(self) -> tuple[int, bool]:
        """Remove a piece of what is old; return the number of counts removed too early, and if there may be more."""
        ...

    def written(self, marks: list[int]) -> None:
        """Clear the marks of entries that have been written."""

    def fail(self, error: BaseException) -> LedgerError:
        """Stop counting."""
        ...


class GroupCommit:
    """Entries to be written, and the thread that writes them. The thread ends when it is stopped."""

    def __init__(self, ledger: CommittedFiles) -> None:
        self._ledger = ledger
        self._lock = threading.Lock()
        self._turn = threading.Condition(self._lock)
        self._entries: dict[bytes, Entry | None] = {}
        self._in_hand: dict[bytes, Entry | None] = {}
        self._marks: list[int] = []
        self._buried: list[Buried] = []
        self._thread: threading.Thread | None = None
        self._stopping = False
        # A process that lives for a short time prunes too.
        self._pruned = float("-inf")
        self._lost = 0

    def put(self, key: bytes, entry: Entry | None, mark: int | None, buried: Buried | None = None) -> None:
        """Queue an entry; clear its mark after it is written."""
        with self._lock:
            self._entries[key] = entry
            if mark is not None:
                self._marks.append(mark)
            if buried is not None:
                self._buried.append(buried)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="redelivery-ledger", daemon=True)
                self._thread.start()
            else:
                self._turn.notify()

    def writes(self, key: bytes) -> bool:
        """True if an entry of this message is not written yet."""
        return key in self._entries or key in self._in_hand

    def begin(self) -> None:
        """Keep the thread waiting for entries, once it has started."""
        with self._lock:
            self._stopping = False

    def stop(self) -> None:
        """Write all entries.

        Entries that come later, from a handler that still runs, are written at once.
        """
        with self._lock:
            thread, self._stopping = self._thread, True
            self._turn.notify()
        if thread is not None:
            thread.join()

    def clear(self) -> None:
        """Drop the entries of a failed write.

        Their marks are in a file that is closed; they count when that file is settled.
        """
        with self._lock:
            self._entries, self._in_hand, self._marks, self._buried = {}, {}, [], []

    def _run(self) -> None:
        while True:
            with self._lock:
                while not self._entries and not self._stopping:
                    self._turn.wait()
                if not self._entries:
                    self._thread = None
                    return
                if not self._stopping:
                    self._turn.wait(COMPANY)
                entries, self._entries = self._entries, {}
                marks, self._marks = self._marks, []
                buried, self._buried = self._buried, []
                self._in_hand = entries
            try:
                self._ledger.write(entries, buried)
                self._in_hand = {}
                self._ledger.written(marks)
                self._prune()
            except Exception as error:  # noqa: BLE001 - reported to all consumers
                # The marks of failed attempts stay: they are charged when this process ends.
                self._ledger.fail(error)
                with self._lock:
                    self._thread = None
                return

    def _prune(self) -> None:
        """Prune if it is time: a piece at least, and more until there is something to write."""
        if time.monotonic() - self._pruned <= PRUNE:
            return
        more = True
        while more:
            lost, more = self._ledger.prune()
            self._lost += lost
            with self._lock:
                if more and not self._entries and not self._stopping:
                    self._turn.wait(PAUSE)
                if self._entries or self._stopping:
                    break
        if more:
            return
        self._pruned = time.monotonic()
        lost, self._lost = self._lost, 0
        if lost:
            logger.warning(
                "%s is full (%d messages): removed the counts of the %d oldest; they start at 0 if redelivered",
                self._ledger, self._ledger.limit, lost,
            )  # fmt: skip


# ---- Readonly --------------------------------------------------------------------------------------------
# Read access to a ledger that is not open here, and may be in use elsewhere.
#
# It creates, locks and changes nothing.


def look(path: Path, timeout: float, destination: str | None) -> list[Buried]:
    """Return the causes that a ledger keeps, oldest first. Raises LedgerError, sqlite3.Error, OSError."""
    if not path.exists():
        raise LedgerError(f"the ledger {path} does not exist")
    if not path.is_file():
        raise LedgerError(f"the ledger {path} is not a file")
    if not os.access(path, os.R_OK):
        raise LedgerError(f"the ledger {path} cannot be read: no permission")
    address, log = path.absolute().as_uri(), Path(f"{path}-wal")
    if not log.exists():
        # No process has it open. It is read as an immutable file. Otherwise SQLite leaves files of shared memory
        # behind, or cannot open the database in a directory where it may not create them.
        try:
            found = _read(f"{address}?immutable=1", path, timeout, destination)
        except (sqlite3.Error, LedgerError):
            if not log.exists():
                raise
        else:
            if not log.exists():
                return found
    return _read(f"{address}?mode=ro", path, timeout, destination)  # a process has opened it


def _read(address: str, path: Path, timeout: float, destination: str | None) -> list[Buried]:
    with closing(sqlite3.connect(address, timeout=timeout, uri=True)) as sql:
        if sql.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
            raise LedgerError(f"{path} is not a ledger: it is empty, or the database of another program")
        return buried_in(sql, path, destination)


# ---- Sqlite ledger ---------------------------------------------------------------------------------------

# Seconds between two looks at the files while no failure is written.
_LOOK = 1.0
_BY_PATH: weakref.WeakValueDictionary[tuple[int, str], SqliteLedger] = weakref.WeakValueDictionary()


class SqliteLedger:
    """Ledger of attempts in an SQLite file on a local disk, for all processes of a host.

    It implements `Ledger`.

    Args:
        path: The file; its directory must exist.
        keep: Seconds, or a timedelta, for which the entry of a message is kept after it was last written.
            Default 30 days.
        limit: Most entries of messages, and most causes of dead letters. Default 100,000 of each. Beyond it
            the oldest are removed; a log line reports it.
        timeout: Seconds to wait for another process that writes. Default 5.

    Raises:
        ConfigurationError: An argument is out of range.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        keep: float | timedelta = 30 * 86400.0,
        limit: int = 100_000,
        timeout: float = 5.0,
    ) -> None:
        self.path = Path(path)
        self.keep = seconds(keep, "keep")
        self.limit = whole(limit, "limit", 1)
        self.timeout = seconds(timeout, "timeout")
        self.error: LedgerError | None = None
        self.database_lock = threading.Lock()
        self._entries: dict[bytes, Entry] = {}
        self._others: dict[str, OtherMarks] = {}
        self._revision = -1
        self._seen = b""
        self._board: mmap.mmap | None = None
        self._marks: Marks | None = None
        self._database: Database | None = None
        self._files: OpenFiles | None = None
        self._looked = 0.0
        self._writer = GroupCommit(self)
        self._opening = threading.Lock()
        self._users: list[Callable[[], None]] = []

    @classmethod
    def at(cls, path: str) -> SqliteLedger:
        """Return the ledger of this file in this process. All connections of the process must share one."""
        key = os.getpid(), str(Path(path).resolve())
        found = _BY_PATH.get(key)
        if found is None:
            found = _BY_PATH[key] = cls(path)
        return found

    def __repr__(self) -> str:
        return f"<SqliteLedger {self.path}>"

    @property
    def in_use(self) -> bool:
        """True while a connection uses it, or a handler of a closed connection still runs."""
        return self._database is not None

    # Opening and closing.

    def open(self, failed: Callable[[], None]) -> None:
        """Start counting for one more connection.

        Args:
            failed: Function that is called when counting fails later.

        Raises:
            LedgerError: The file cannot be used, or another `SqliteLedger` of this process uses it.
        """
        with self._opening:
            one = _BY_PATH.setdefault((os.getpid(), str(self.path.resolve())), self)
            if one is not self and one.in_use:
                raise LedgerError(
                    f"the ledger {self.path} is in use by another SqliteLedger of this process; share one object"
                )
            if not self._users and (self._database is None or self.error is not None):
                self._shut()
                _BY_PATH[os.getpid(), str(self.path.resolve())] = self
                self.error = None
                try:
                    self._open()
                except Exception as error:
                    self.error = explained(self.path, error, self.timeout)
                    if self._marks is not None:
                        self._marks.remove()  # nothing is open
                        self._marks = None
                    self._shut()
                    raise self.error from error
            elif self.error is not None:
                raise self.error
            self._users.append(failed)
            self._writer.begin()

    def close(self, failed: Callable[[], None]) -> None:
        """End counting for one connection.

        With the last connection, all entries are written, and the file of marks is removed. While a handler
        still runs, the file stays until the handler ends; if this process ends first, the next process finds
        the mark.

        Args:
            failed: Function that was given to `open`.
        """
        with self._opening:
            if failed in self._users:
                self._users.remove(failed)
            self._leave()

    def _leave(self) -> None:
        """Close the files, if no connection uses them and no handler runs."""
        if not self._users:
            self._writer.stop()
            if self._marks is None or not self._marks.open:
                self._shut()

    def fail(self, error: BaseException) -> LedgerError:
        """Stop counting: all consumers stop. Return the error."""
        if self.error is None:
            self.error = explained(self.path, error, self.timeout)
            for failed in list(self._users):
                failed()
        return self.error

    def refresh(self, key: bytes) -> None:
        """Read the changes; settle the open attempts of a dead process, if one of them is of this message.

        Raises:
            LedgerError: The ledger cannot count.
        """
        try:
            with self.database_lock:
                self._learn(key)
        except Exception as error:
            raise self.fail(error) from error

    # Attempts.

    def look_up(self, key: bytes, *, fresh: bool = False) -> Entry | None:
        """Return the entry of a message, or None.

        Args:
            key: Key of the message.
            fresh: True: the caller has just called `refresh`.

        Raises:
            Behind: `refresh` may change the entry, and `fresh` is False.
            LedgerError: The ledger cannot count, or is closed.
        """
        if self.error is not None:
            raise self.error
        board, others = self._board, self._others
        if board is None:
            raise LedgerError(f"the ledger {self.path} is closed")
        if not fresh and (
            board[:8] != self._seen or (others and any(other.has(key) for other in others.values()))
        ):
            raise Behind
        entry = self._entries.get(key)
        if not others:
            return entry
        return counted(entry, [attempt for other in others.values() for attempt in other.of(key)])

    def begin(self, key: bytes, count: int) -> int:
        """Mark an attempt; return its mark.

        Args:
            key: Key of the message.
            count: Redeliveries charged so far.

        Raises:
            LedgerError: The ledger is closed, one of its files was removed, or too many attempts are open.
        """
        if self._marks is None:
            raise LedgerError(f"the ledger {self.path} is closed")
        if time.monotonic() - self._looked > _LOOK:
            self._looked = time.monotonic()
            try:
                self._check()
            except LedgerError as error:
                raise self.fail(error) from None
        return self._marks.begin(key, count)

    def end(self, mark: int | None, key: bytes, entry: Entry | None, *, failed: bool, keep: bool) -> None:
        """Clear a mark. Another thread writes the entry, within milliseconds.

        Args:
            mark: Mark of the attempt; None: it has none.
            key: Key of the message.
            entry: New entry; None: forget the message.
            failed: True if the attempt failed.
            keep: True: leave the entry of the message as it is.
        """
        marks = self._marks
        if marks is None:
            return
        self._clear(marks, mark, key, entry, failed=failed, keep=keep)
        # This may have been the last handler of a closed connection.
        if not self._users:
            with self._opening:
                self._leave()

    def _clear(
        self, marks: Marks, mark: int | None, key: bytes, entry: Entry | None, *, failed: bool, keep: bool
    ) -> None:
        if keep or (entry is None and key not in self._entries):
            if mark is not None:
                marks.end(mark)
            return
        if entry is None:
            self._entries.pop(key, None)
        else:
            self._entries[key] = entry
        if failed and mark is not None:
            marks.failed(mark)
            self._writer.put(key, entry, mark)
        else:
            if mark is not None:
                marks.end(mark)
            self._writer.put(key, entry, None)

    def hang(self, mark: int) -> None:
        """Record that an attempt will not end."""
        if self._marks is not None:
            self._marks.hang(mark)

    def bury(self, key: bytes, buried: Buried | None) -> None:
        """Forget a message whose dead letter is confirmed, and keep its cause."""
        known = self._entries.pop(key, None)
        if known is not None or buried is not None:
            self._writer.put(key, None, None, buried)

    def buried(self, destination: str | None = None) -> list[Buried]:
        """Return the causes that are kept, oldest first.

        The ledger need not be open, and another process may use it: this call changes nothing.

        Args:
            destination: Qualified destination; None: all.

        Raises:
            LedgerError: The file cannot be read, or is not a ledger.
        """
        try:
            with self.database_lock:
                if self._database is not None:
                    return self._database.buried(destination)
            return look(self.path, self.timeout, destination)
        except Exception as error:
            raise explained(self.path, error, self.timeout) from error

    # Its files: the database, the marks of other processes, and the board with the last revision. The methods below run
    # with `database_lock` held, and no other lock, because they may take long; exceptions say so.

    def _open(self) -> None:
        check_local(self.path)
        with self.database_lock:
            self._database = Database(self.path, self.timeout)
            self._board = _mapped(Path(f"{self.path}-board"), self.path)
            self._entries, self._revision = {}, -1
            self._marks = Marks(Path(f"{self.path}-marks-{secrets.token_hex(8)}"), self.path)
            with self._database.writing() as revision:
                settled = [self._settle(name, revision) for name in self._database.owners()]
                settled += self._strays()
                self._database.own(self._marks.path.name)
                self._tell(revision)
            _remove(settled)
            # A piece, for processes that never write; the writer thread removes the rest.
            self._database.prune(self.keep, self.limit, self._tell)
            beside = [Path(f"{self.path}{end}") for end in ("-wal", "-shm", "-board")]
            self._files = OpenFiles(self.path, [self.path, *beside, self._marks.path])
            self._synchronise()

    def _check(self) -> None:
        """Raise LedgerError if a file was removed under the ledger."""
        if self._files is not None:
            self._files.check()

    def _shut(self) -> None:
        with self.database_lock:
            if self._database is not None and self._marks is not None and self.error is None:
                try:
                    self._check()
                    with self._database.writing() as revision:
                        self._database.disown(self._marks.path.name)
                        self._tell(revision)
                    self._marks.remove()
                except Exception as error:  # noqa: BLE001 - the next process finds the file, without open marks
                    self.error = explained(self.path, error, self.timeout)
            self._others = {}
            if self._database is not None:
                self._database.close()
            self._database = self._board = self._files = None
            if self._marks is not None:
                self._marks.leave()
            self._marks = None
            self._writer.clear()

    def _tell(self, revision: int) -> None:
        """Write the revision to the board. Call it inside of `writing`: it never goes back then."""
        assert self._board is not None
        self._board[:8] = revision.to_bytes(8, "little")

    def _strays(self) -> list[Path | None]:
        """Settle files of processes that died before they registered or removed them; return the files."""
        assert self._database is not None
        assert self._marks is not None
        told = {*self._database.owners(), self._marks.path.name}
        paths = self.path.parent.glob(f"{glob.escape(self.path.name)}-marks-*")
        return [self._settle(path.name, None) for path in paths if path.name not in told]

    def _settle(self, name: str, revision: int | None) -> Path | None:
        """Settle the open attempts of a process if it has died; return the file to remove after the commit.

        Call it inside of `writing`. No other process tries to take the lock of the marks then: a process that
        does not get that lock knows that its owner lives.
        """
        assert self._database is not None
        try:
            other = OtherMarks(self.path.with_name(name))
        except FileNotFoundError:
            self._database.disown(name)
            return None
        except ValueError:
            # Its process is about to create it, or died meanwhile.
            return None
        try:
            if not other.dead():
                return None
            attempts = [] if revision is None else other.attempts()
            known = self._database.entries({attempt.key for attempt in attempts})
            for key, entry in after_death(attempts, known, time.time()).items():
                self._database.write(key, entry, revision or 0)
            self._database.disown(name)
        finally:
            other.close()
        return other.path

    def _synchronise(self) -> None:
        """Read the changes, and the names of other processes' marks."""
        if self._database is None or self._marks is None:
            raise LedgerError(f"the ledger {self.path} is closed")
        changes = self._database.changes(self._revision, self.limit)
        if changes.whole:
            self._entries = {}
        for key, entry in changes.entries.items():
            if self._writer.writes(key):
                continue  # this process has a newer entry
            if entry is None:
                self._entries.pop(key, None)
            else:
                self._entries[key] = entry
        for name in set(changes.owners) - self._others.keys() - {self._marks.path.name}:
            try:
                self._others[name] = OtherMarks(self.path.with_name(name))
            except (FileNotFoundError, ValueError):
                continue  # it has just ended
        # Other threads may still read a file that is dropped here. It is unmapped after the last reference.
        self._others = {name: other for name, other in self._others.items() if name in changes.owners}
        self._revision = changes.revision
        self._seen = changes.revision.to_bytes(8, "little")

    def _learn(self, key: bytes) -> None:
        """Read the changes; settle the open attempts of a dead process, if one is of this message."""
        self._synchronise()
        holders = [name for name, other in self._others.items() if other.has(key)]
        if holders:
            assert self._database is not None
            self._check()
            with self._database.writing() as revision:
                settled = [self._settle(name, revision) for name in holders]
                self._tell(revision)
            _remove(settled)
            self._synchronise()

    def write(self, entries: dict[bytes, Entry | None], buried: list[Buried]) -> None:
        """Write entries in one transaction. For the writer thread."""
        with self.database_lock:
            if self._database is None:
                raise LedgerError(f"the ledger {self.path} is closed")
            self._check()
            with self._database.writing() as revision:
                for key, entry in entries.items():
                    self._database.write(key, entry, revision)
                for one in buried:
                    self._database.bury(one)
                self._tell(revision)
            # No other process has written: there is nothing to read.
            if revision == self._revision + 1:
                self._revision, self._seen = revision, revision.to_bytes(8, "little")

    def prune(self) -> tuple[int, bool]:
        """Remove a piece of what is old or too much; see `Database.prune`. For the writer thread."""
        with self.database_lock:
            if self._database is None:
                raise LedgerError(f"the ledger {self.path} is closed")
            self._check()
            return self._database.prune(self.keep, self.limit, self._tell)

    def written(self, marks: list[int]) -> None:
        """Clear the marks of failures that have been written."""
        if self._marks is not None:
            for mark in marks:
                self._marks.end(mark)


def _remove(settled: list[Path | None]) -> None:
    for path in settled:
        if path is not None:
            path.unlink(missing_ok=True)


def _mapped(path: Path, database: Path) -> mmap.mmap:
    """Map the board: eight bytes that all processes of a ledger share."""
    file = open_beside(path, database)
    try:
        if os.fstat(file).st_size < 8:
            os.pwrite(file, bytes(8), 0)
        return mmap.mmap(file, 8)
    finally:
        os.close(file)

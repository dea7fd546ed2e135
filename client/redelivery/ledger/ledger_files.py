"""The files of a ledger: its database, what other processes have marked, and a board that tells of changes.

All but what is said otherwise is done with `database_lock`, and with no other lock: it may take long.
"""

from __future__ import annotations

import glob
import mmap
import os
import secrets
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from redelivery.core.ledger_entry import after_death
from redelivery.errors import LedgerError
from redelivery.ledger.database import Database, explained
from redelivery.ledger.filesystems import check_local
from redelivery.ledger.group_commit import GroupCommit
from redelivery.ledger.marks import Marks, OtherMarks

if TYPE_CHECKING:
    from redelivery.core.ledger_entry import Buried, Entry

__all__ = ["LedgerFiles"]


class LedgerFiles:
    """What one process has open of a ledger; `SqliteLedger` counts with it."""

    def __init__(self, path: Path, keep: float, limit: int, timeout: float) -> None:
        self.path = path
        self.keep = keep
        self.limit = limit
        self.timeout = timeout
        self.error: LedgerError | None = None
        self.database_lock = threading.Lock()
        self._entries: dict[bytes, Entry] = {}
        self._others: dict[str, OtherMarks] = {}
        self._revision = -1
        self._seen = b""
        self._board: mmap.mmap | None = None
        self._marks: Marks | None = None
        self._database: Database | None = None
        self._writer = GroupCommit(self)

    def fail(self, error: BaseException) -> LedgerError:
        """Count no more. From any thread."""
        if self.error is None:
            self.error = explained(self.path, error, self.timeout)
        return self.error

    def _open(self) -> None:
        check_local(self.path)
        with self.database_lock:
            self._database = Database(self.path, self.timeout)
            self._board = _mapped(Path(f"{self.path}-board"))
            self._entries, self._revision = {}, -1
            self._marks = Marks(Path(f"{self.path}-marks-{secrets.token_hex(8)}"))
            with self._database.writing() as revision:
                settled = [self._settle(name, revision) for name in self._database.owners()]
                settled += self._strays()
                self._database.own(self._marks.path.name)
                self._database.prune(self.keep, self.limit)
                self._tell(revision)
            _remove(settled)
            self._synchronise()

    def _shut(self) -> None:
        with self.database_lock:
            if self._database is not None and self._marks is not None and self.error is None:
                try:
                    with self._database.writing() as revision:
                        self._database.disown(self._marks.path.name)
                        self._tell(revision)
                    self._marks.remove()
                except Exception as error:  # noqa: BLE001 - the next process finds the file, without open marks
                    self.error = explained(self.path, error, self.timeout)
            self._others = {}
            if self._database is not None:
                self._database.close()
            self._database = self._board = None
            if self._marks is not None:
                self._marks.leave()
            self._marks = None
            self._writer.clear()

    # Other processes.

    def _tell(self, revision: int) -> None:
        """Let other processes see that there is something new. Inside `writing`: so it never goes back."""
        assert self._board is not None
        self._board[:8] = revision.to_bytes(8, "little")

    def _strays(self) -> list[Path | None]:
        """Return files of processes that died before they could tell of them, or before they could remove them."""
        assert self._database is not None
        assert self._marks is not None
        told = {*self._database.owners(), self._marks.path.name}
        paths = self.path.parent.glob(f"{glob.escape(self.path.name)}-marks-*")
        return [self._settle(path.name, None) for path in paths if path.name not in told]

    def _settle(self, name: str, revision: int | None) -> Path | None:
        """Settle what a process had open, if it has died; return the file to remove once that is committed.

        Inside `writing`: nobody else asks for the lock then, so who does not get it knows that the owner lives.
        """
        assert self._database is not None
        try:
            other = OtherMarks(self.path.with_name(name))
        except FileNotFoundError:
            self._database.disown(name)
            return None
        except ValueError:
            return None  # its process is about to make it, or died over that
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
        """Read what is new, and whose marks there are."""
        if self._database is None or self._marks is None:
            raise LedgerError(f"the ledger {self.path} is closed")
        changes = self._database.changes(self._revision)
        if changes.whole:
            self._entries = {}
        for key, entry in changes.entries.items():
            if self._writer.writes(key):
                continue  # ours is newer
            if entry is None:
                self._entries.pop(key, None)
            else:
                self._entries[key] = entry
        for name in set(changes.owners) - self._others.keys() - {self._marks.path.name}:
            try:
                self._others[name] = OtherMarks(self.path.with_name(name))
            except (FileNotFoundError, ValueError):
                continue  # it has just ended
        # Others may be looking at one that goes: it is unmapped when nobody does any more.
        self._others = {name: other for name, other in self._others.items() if name in changes.owners}
        self._revision = changes.revision
        self._seen = changes.revision.to_bytes(8, "little")

    def _learn(self, key: bytes) -> None:
        """Read what is new; settle what a dead process had open, if it had this message."""
        self._synchronise()
        holders = [name for name, other in self._others.items() if other.has(key)]
        if holders:
            assert self._database is not None
            with self._database.writing() as revision:
                settled = [self._settle(name, revision) for name in holders]
                self._tell(revision)
            _remove(settled)
            self._synchronise()

    def write(self, entries: dict[bytes, Entry | None], buried: list[Buried], *, prune: bool) -> int:
        """Write entries in one transaction; return how many counts had to be forgotten. For the writer."""
        with self.database_lock:
            if self._database is None:
                raise LedgerError(f"the ledger {self.path} is closed")
            with self._database.writing() as revision:
                for key, entry in entries.items():
                    self._database.write(key, entry, revision)
                for one in buried:
                    self._database.bury(one)
                lost = self._database.prune(self.keep, self.limit) if prune else 0
                self._tell(revision)
            if revision == self._revision + 1:  # nobody else has written: there is nothing to read
                self._revision, self._seen = revision, revision.to_bytes(8, "little")
            return lost

    def written(self, marks: list[int]) -> None:
        """Clear the marks of failures that have been written."""
        if self._marks is not None:
            for mark in marks:
                self._marks.end(mark)


def _remove(settled: list[Path | None]) -> None:
    for path in settled:
        if path is not None:
            path.unlink(missing_ok=True)


def _mapped(path: Path) -> mmap.mmap:
    """Map the board: eight bytes that all processes of a ledger share."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        if os.fstat(file).st_size < 8:
            os.pwrite(file, bytes(8), 0)
        return mmap.mmap(file, 8)
    finally:
        os.close(file)

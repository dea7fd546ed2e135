"""The ledger that SQLite keeps: counts in a database, marks in memory-mapped files beside it.

Beside `orders.db` are its `-wal` and `-shm`, `orders.db-board` (the number of the last change, so that a process
sees without asking the database that another one has written), and one `orders.db-marks-…` for each process.
"""

from __future__ import annotations

import os
import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

from redelivery.core.ledger_entry import counted
from redelivery.core.option_values import seconds, whole
from redelivery.errors import LedgerError
from redelivery.ledger.database import explained
from redelivery.ledger.interface import Behind
from redelivery.ledger.ledger_files import LedgerFiles
from redelivery.ledger.readonly import look

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from redelivery.core.ledger_entry import Buried, Entry
    from redelivery.ledger.marks import Marks

__all__ = ["SqliteLedger"]

_BY_PATH: weakref.WeakValueDictionary[tuple[int, str], SqliteLedger] = weakref.WeakValueDictionary()


class SqliteLedger(LedgerFiles):
    """Counts attempts in an SQLite file on a local disk, for all processes of a host. Satisfies `Ledger`.

    Args:
        path: the file; its directory must exist.
        keep: how long what is known of a message is kept after it was written last: seconds or a timedelta, 30 days
            by default.
        limit: messages of which something is known at once, and causes of dead letters; 100,000 of each by default.
            Beyond it the oldest are forgotten, which the log tells.
        timeout: seconds to wait for another process that writes; 5 by default.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        keep: float | timedelta = 30 * 86400.0,
        limit: int = 100_000,
        timeout: float = 5.0,
    ) -> None:
        limit = whole(limit, "limit", 1)
        super().__init__(Path(path), seconds(keep, "keep"), limit, seconds(timeout, "timeout"))
        self._opening = threading.Lock()
        self._users: list[Callable[[], None]] = []

    @classmethod
    def at(cls, path: str) -> SqliteLedger:
        """Return the ledger of this file in this process: all of its connections must share one."""
        key = os.getpid(), str(Path(path).resolve())
        found = _BY_PATH.get(key)
        if found is None:
            found = _BY_PATH[key] = cls(path)
        return found

    def __repr__(self) -> str:
        return f"<SqliteLedger {self.path}>"

    @property
    def in_use(self) -> bool:
        """Whether a connection uses it, or a handler of one that has been closed still runs."""
        return self._database is not None

    # Opening and closing.

    def open(self, failed: Callable[[], None]) -> None:
        """Begin to count for one more connection. Raises LedgerError."""
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
        """End it for one connection; with the last one all is written, and the file of marks is removed.

        Not while a handler still runs: its mark stays until the handler ends, and the next process finds it otherwise.
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
        """Count no more: all consumers stop."""
        first = self.error is None
        found = super().fail(error)
        for failed in list(self._users) if first else ():
            failed()
        return found

    def refresh(self, key: bytes) -> None:
        """Read what is new; settle what a dead process had open, if it had this message. Raises LedgerError."""
        try:
            with self.database_lock:
                self._learn(key)
        except Exception as error:
            raise self.fail(error) from error

    # Attempts.

    def look_up(self, key: bytes, *, fresh: bool = False) -> Entry | None:
        """Return what is known of a message. Raises Behind, LedgerError."""
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
        """Mark an attempt. Raises LedgerError."""
        if self._marks is None:
            raise LedgerError(f"the ledger {self.path} is closed")
        return self._marks.begin(key, count)

    def end(self, mark: int | None, key: bytes, entry: Entry | None, *, failed: bool, keep: bool) -> None:
        """Clear a mark; the entry is written by another thread, soon."""
        marks = self._marks
        if marks is None:
            return
        self._clear(marks, mark, key, entry, failed=failed, keep=keep)
        # The last handler of a connection that has been closed.
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
        """Learn that an attempt will not end."""
        if self._marks is not None:
            self._marks.hang(mark)

    def bury(self, key: bytes, buried: Buried | None) -> None:
        """Forget a message whose dead letter is safe, and keep its cause."""
        known = self._entries.pop(key, None)
        if known is not None or buried is not None:
            self._writer.put(key, None, None, buried)

    def buried(self, destination: str | None = None) -> list[Buried]:
        """Return the causes that are kept, oldest first. Raises LedgerError.

        Also of a ledger that is not open, or in use by another process: nothing of it is changed.
        """
        try:
            with self.database_lock:
                if self._database is not None:
                    return self._database.buried(destination)
            return look(self.path, self.timeout, destination)
        except Exception as error:
            raise explained(self.path, error, self.timeout) from error

"""Marks of attempts in a memory-mapped file: one per process incarnation, locked while the process lives.

A mark is durable against the death of its process as soon as it is written, and costs no system call. The kernel
drops the lock with the process, however that ends; process ids lie in containers, and are used again.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING

from redelivery.core.ledger_entry import KEY, AttemptMark
from redelivery.errors import LedgerError
from redelivery.ledger.files import open_beside

if TYPE_CHECKING:
    from pathlib import Path

    from redelivery.core.ledger_entry import AttemptState

__all__ = ["CAPACITY", "COUNT_LIMIT", "Marks", "OtherMarks"]

# Attempts that a process may have open: 1.5 MB, allocated at once.
CAPACITY = 65535
# The state last: without it the mark does not count.
_MARK = struct.Struct(f"<{KEY}sIB3x")
_SIZE = _MARK.size
# Failures that a mark can tell of; no more are counted.
COUNT_LIMIT = 2**32 - 1
# In the place of the first mark: how many places have ever been used.
_USED = struct.Struct("<Q")
_STATE = KEY + 4
_FREE, _RUNNING, _FAILED, _HUNG = range(4)
_NAMES: dict[int, AttemptState] = {_RUNNING: "running", _FAILED: "failed", _HUNG: "hung"}
_READ = os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
_LENGTH = (CAPACITY + 1) * _SIZE


class Marks:
    """The marks of this process."""

    def __init__(self, path: Path, database: Path) -> None:
        """Make the file, all of it: a full disk is noticed here, not when a page of it is first written."""
        self.path = path
        self._file = open_beside(path, database, new=True)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self._file, 0, _LENGTH)
            else:
                os.pwrite(self._file, bytes(_LENGTH), 0)
            self._map = mmap.mmap(self._file, _LENGTH)
        except BaseException:
            os.close(self._file)
            path.unlink()
            raise
        self._free: list[int] = []
        self._used = 0
        _HERE.add(self)

    @property
    def open(self) -> int:
        """How many are in use."""
        return self._used - len(self._free)

    def begin(self, key: bytes, count: int) -> int:
        """Mark an attempt; return where."""
        try:
            place = self._free.pop()
        except IndexError:
            place = self._another()
        _MARK.pack_into(self._map, place, key, count, _RUNNING)
        return place

    def _another(self) -> int:
        if self._used >= CAPACITY:
            raise LedgerError(
                f"more than {CAPACITY} messages are unsettled at once: the ledger can mark no more"
            )
        self._used += 1
        _USED.pack_into(self._map, 0, self._used)
        return self._used * _SIZE

    def end(self, place: int) -> None:
        """Clear a mark."""
        self._map[place + _STATE] = _FREE
        self._free.append(place)

    def failed(self, place: int) -> None:
        """Note that its handler has failed; it is cleared when that has been written down."""
        self._map[place + _STATE] = _FAILED

    def hang(self, place: int) -> None:
        """Note that its handler will not end."""
        self._map[place + _STATE] = _HUNG

    def leave(self) -> None:
        """Drop the lock. Also in a child process, where it is its parent's."""
        with suppress(OSError):
            os.close(self._file)
        self._file = -1
        self._map.close()  # it has the file open, too

    def remove(self) -> None:
        """Nothing is open any more: no file is left."""
        with suppress(FileNotFoundError):
            self.path.unlink()
        self.leave()


_HERE: weakref.WeakSet[Marks] = weakref.WeakSet()


def _leave_all() -> None:
    for marks in list(_HERE):
        marks.leave()


# Or a child would keep the lock of a parent that has died.
os.register_at_fork(after_in_child=_leave_all)


class OtherMarks:
    """The marks of another process, which lives or has died."""

    def __init__(self, path: Path) -> None:
        """Raise FileNotFoundError, or ValueError if it has been cut short: nothing has been marked there."""
        self.path = path
        self._lock: int | None = None
        if path.is_symlink():
            raise ValueError("no process of ours makes a link")
        file = os.open(path, _READ)
        try:
            self._map = mmap.mmap(file, _LENGTH, prot=mmap.PROT_READ)
        finally:
            os.close(file)

    def has(self, key: bytes) -> bool:
        """Whether an attempt of this message may be open there."""
        return self._map.find(key, _SIZE, self._end()) >= 0

    def of(self, key: bytes) -> list[AttemptMark]:
        """Return the open attempts of this message."""
        return [attempt for attempt in self.attempts() if attempt.key == key] if self.has(key) else []

    def attempts(self) -> list[AttemptMark]:
        """Return all that is open there."""
        found = _MARK.iter_unpack(self._map[_SIZE : self._end()])
        # The next count has to have room in a mark, too.
        return [
            AttemptMark(key, min(count, COUNT_LIMIT - 1), _NAMES[state])
            for key, count, state in found
            if state in _NAMES
        ]

    def _end(self) -> int:
        used: int = _USED.unpack_from(self._map, 0)[0]
        return (min(used, CAPACITY) + 1) * _SIZE

    def dead(self) -> bool:
        """Whether its process has died: then its lock is ours. Asked only by who may write to the database."""
        self._lock = os.open(self.path, _READ)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        """Read it no longer; drop its lock."""
        self._map.close()
        if self._lock is not None:
            os.close(self._lock)

"""Marks of attempts in a memory-mapped file: one file per process incarnation.

The file is locked while the process lives. A mark survives the death of its process as soon as it is written,
without a system call. The kernel drops the lock when the process ends, in whatever way. Process ids cannot
replace the lock: containers have their own, and the system uses them again.
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

# Most open attempts of a process: 1.5 MB, allocated at once.
CAPACITY = 65535
# Key, count and state. The state is last: without it the mark does not count.
_MARK = struct.Struct(f"<{KEY}sIB3x")
_SIZE = _MARK.size
# Most failures that a mark can hold; further ones are not counted.
COUNT_LIMIT = 2**32 - 1
# At the place of the first mark: the number of places ever used.
_USED = struct.Struct("<Q")
_STATE = KEY + 4
_FREE, _RUNNING, _FAILED, _HUNG = range(4)
_NAMES: dict[int, AttemptState] = {_RUNNING: "running", _FAILED: "failed", _HUNG: "hung"}
_READ = os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
_LENGTH = (CAPACITY + 1) * _SIZE


class Marks:
    """Marks of this process."""

    def __init__(self, path: Path, database: Path) -> None:
        """Create the whole file: a full disk fails here, not when a page of it is first written."""
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
        """Number of marks in use."""
        return self._used - len(self._free)

    def begin(self, key: bytes, count: int) -> int:
        """Mark an attempt; return the place of the mark."""
        try:
            place = self._free.pop()
        except IndexError:
            place = self._another()
        _MARK.pack_into(self._map, place, key, count, _RUNNING)
        return place

    def _another(self) -> int:
        if self._used >= CAPACITY:
            raise LedgerError(
                f"the ledger cannot mark more than {CAPACITY} unsettled messages; lower redelivery.credit"
            )
        self._used += 1
        _USED.pack_into(self._map, 0, self._used)
        return self._used * _SIZE

    def end(self, place: int) -> None:
        """Clear a mark."""
        self._map[place + _STATE] = _FREE
        self._free.append(place)

    def failed(self, place: int) -> None:
        """Set a mark to failed. It is cleared when the failure is written to the database."""
        self._map[place + _STATE] = _FAILED

    def hang(self, place: int) -> None:
        """Set a mark to hung: its handler will not end."""
        self._map[place + _STATE] = _HUNG

    def leave(self) -> None:
        """Drop the lock. Also called in a child process, which inherits its parent's."""
        file, self._file = self._file, -1
        # gevent's `close` raises ValueError for a descriptor that is none.
        if file >= 0:
            with suppress(OSError):
                os.close(file)
        self._map.close()  # the map has the file open, too

    def remove(self) -> None:
        """Remove the file: no attempt is open any more."""
        with suppress(FileNotFoundError):
            self.path.unlink()
        self.leave()


_HERE: weakref.WeakSet[Marks] = weakref.WeakSet()


def _leave_all() -> None:
    for marks in list(_HERE):
        marks.leave()


# Otherwise a child would keep the lock of a parent that has died.
os.register_at_fork(after_in_child=_leave_all)


class OtherMarks:
    """Marks of another process, which lives or has died."""

    def __init__(self, path: Path) -> None:
        """Raise FileNotFoundError; or ValueError if the file is too short, and so has no marks."""
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
        """True if an attempt of this message may be open there."""
        return self._map.find(key, _SIZE, self._end()) >= 0

    def of(self, key: bytes) -> list[AttemptMark]:
        """Return the open attempts of this message."""
        return [attempt for attempt in self.attempts() if attempt.key == key] if self.has(key) else []

    def attempts(self) -> list[AttemptMark]:
        """Return all open attempts."""
        found = _MARK.iter_unpack(self._map[_SIZE : self._end()])
        # The next count must fit into a mark, too.
        return [
            AttemptMark(key, min(count, COUNT_LIMIT - 1), _NAMES[state])
            for key, count, state in found
            if state in _NAMES
        ]

    def _end(self) -> int:
        used: int = _USED.unpack_from(self._map, 0)[0]
        return (min(used, CAPACITY) + 1) * _SIZE

    def dead(self) -> bool:
        """True if its process has died; then this process has its lock.

        Call it only inside of `Database.writing`.
        """
        self._lock = os.open(self.path, _READ)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        """Close the file, and drop its lock."""
        self._map.close()
        if self._lock is not None:
            os.close(self._lock)

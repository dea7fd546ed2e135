"""Write-ahead log's store in a folder on a disk, local or shared."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from redelivery_spark.wal.process_id import who

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["Folder"]

_LOCK = "lock"


class Folder:
    """Store in a folder on a local disk, or on NFS: exclusive creation is a hard link, which only one process can make.

    Names may have one `/`. Picklable: it holds only its path.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.url = path

    def __repr__(self) -> str:
        return f"Folder({self.path!r})"

    def prepare(self, *folders: str) -> None:
        """Make the folder, and the folders in it. Raises OSError."""
        for each in ("", *folders):
            (Path(self.path) / each).mkdir(parents=True, exist_ok=True)
        if not os.access(self.path, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    def lock(self) -> Callable[[], None] | None:
        """Lock the log; return the function that unlocks it, as the end of the process does. None: another process has
        it.
        """
        handle = os.open(Path(self.path) / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            return None
        os.ftruncate(handle, 0)
        os.write(handle, who().encode())
        return lambda: os.close(handle)

    def holder(self) -> str:
        """Return the name of the process that has the lock."""
        with contextlib.suppress(OSError):
            return (Path(self.path) / _LOCK).read_text() or "another process"
        return "another process"

    def publish(self, name: str, content: bytes | memoryview, *, durable: bool = True) -> bool:
        """Create a file atomically. Return False if another process was first."""
        target = Path(self.path) / name
        temporary = target.parent / f".{target.name}.{uuid.uuid4().hex}.tmp"
        try:
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                if durable:
                    os.fsync(file.fileno())
            try:
                os.link(temporary, target)
            except FileExistsError:
                # Over NFS the answer to a successful link can be lost. The repeated request then finds its own file.
                if not _same(temporary, target):
                    return False
        finally:
            temporary.unlink(missing_ok=True)
        if durable:
            _sync(target.parent)
        return True

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, or None."""
        try:
            return (Path(self.path) / name).read_bytes()
        except FileNotFoundError:
            return None

    def local(self, name: str) -> str | None:
        """Return the path of a file that can be mapped into memory here, or None if the store has no such files."""
        return str(Path(self.path) / name)

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder, in order, as `folder/name`."""
        try:
            found = os.listdir(Path(self.path) / folder)
        except FileNotFoundError:
            return []
        return sorted(f"{folder}/{each}" for each in found if not each.startswith("."))

    def remove(self, names: Iterable[str]) -> None:
        """Remove files; ignore missing ones."""
        for name in names:
            (Path(self.path) / name).unlink(missing_ok=True)

    def sweep(self, folder: str) -> None:
        """Remove the files of writers that died. Only for the process that has the lock."""
        for each in (Path(self.path) / folder).glob(".*.tmp"):
            each.unlink(missing_ok=True)


def _same(one: Path, other: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return one.samefile(other)
    return False


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

"""A folder on a disk, local or shared, as the log needs it."""

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
    """A folder on a local disk, or on NFS: exclusive creation is a hard link, which only one can make.

    Names may have one `/`. Picklable: it holds nothing but its path.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.url = path

    def __repr__(self) -> str:
        return f"Folder({self.path!r})"

    def prepare(self, *folders: str) -> None:
        """Make the folder, and those in it. Raises OSError."""
        for each in ("", *folders):
            (Path(self.path) / each).mkdir(parents=True, exist_ok=True)
        if not os.access(self.path, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    def lock(self) -> Callable[[], None] | None:
        """Take the lock of the log, and return what gives it back, as the process's end does; None: somebody has it."""
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
        """Say who has the lock."""
        with contextlib.suppress(OSError):
            return (Path(self.path) / _LOCK).read_text() or "another process"
        return "another process"

    def publish(self, name: str, content: bytes | memoryview, *, durable: bool = True) -> bool:
        """Write a file that nobody else can have written before, whole or not at all; False: somebody was first."""
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
                # Over NFS the answer of a link that was made may be lost, and the same request finds its own file.
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
        """Return the path of a file that can be mapped into memory here, or None where there is no such thing."""
        return str(Path(self.path) / name)

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder, in order, as `folder/name`."""
        try:
            found = os.listdir(Path(self.path) / folder)
        except FileNotFoundError:
            return []
        return sorted(f"{folder}/{each}" for each in found if not each.startswith("."))

    def remove(self, names: Iterable[str]) -> None:
        """Remove files, those that are gone already too."""
        for name in names:
            (Path(self.path) / name).unlink(missing_ok=True)

    def sweep(self, folder: str) -> None:
        """Remove what writers that died have left behind in a folder. Only for who has the lock."""
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

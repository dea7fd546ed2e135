"""Write-ahead log's store in a folder on a disk, local or shared."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import stat
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

__all__ = ["Folder", "make_folder", "who"]


# ---- Process id ------------------------------------------------------------------------------------------
# Name of a process for others: in the lock file, and in errors.


def who() -> str:
    """Return a name for this process that says where to look for it."""
    return f"process {os.getpid()} on {socket.gethostname()}"


# ---- Folder ----------------------------------------------------------------------------------------------

_LOCK = "lock"
_FILE, _FOLDER = 0o600, 0o700
_GROUPS_FILE, _GROUPS_FOLDER = 0o660, 0o2770


class Folder:
    """Store in a folder on a local disk, or on NFS: exclusive creation is a hard link, which only one process can make.

    What it makes is for this user alone: files 0600, folders 0700. In a folder with the set-group-ID bit that its group
    may write (`chmod 2770`) it is for that group as well: 0660 and 2770. Names may have one `/`. Picklable: it holds
    only its path.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.url = path

    def __repr__(self) -> str:
        return f"Folder({self.path!r})"

    def prepare(self, *folders: str) -> None:
        """Make the folder, and the folders in it; close those that earlier versions made. Raises OSError."""
        root = Path(self.path)
        make_folder(root)
        for each in folders:
            make_folder(root / each)
            _close(root / each)
        if not os.access(self.path, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    def lock(self) -> Callable[[], None] | None:
        """Lock the log; return the function that unlocks it, as the end of the process does. None: another process has
        it.
        """
        path = Path(self.path) / _LOCK
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE)
        # Another user's, or a file system without permissions.
        with contextlib.suppress(OSError):
            os.fchmod(handle, _modes(path.parent)[0])
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

    def publish(self, name: str, *content: bytes | memoryview, durable: bool = True) -> bool:
        """Create a file of these pieces atomically. Return False if another process was first."""
        target = Path(self.path) / name
        temporary = target.parent / f".{target.name}.{uuid.uuid4().hex}.tmp"
        try:
            with _explained(self.path), os.fdopen(_new(temporary), "wb") as file:
                file.writelines(content)
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
            with _explained(self.path):
                return (Path(self.path) / name).read_bytes()
        except FileNotFoundError:
            return None

    def local(self, name: str) -> str | None:
        """Return the path of a file, which can be mapped into memory and locked."""
        return str(Path(self.path) / name)

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder, in order, as `folder/name`."""
        try:
            with _explained(self.path):
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


def make_folder(path: Path) -> None:
    """Make a folder, and those above it, as `Folder` makes them. Existing ones stay as they are. Raises OSError."""
    if not path.parent.exists():
        make_folder(path.parent)
    with contextlib.suppress(FileExistsError):
        path.mkdir(_FOLDER)
        _close(path)
    if not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))


def _close(path: Path) -> None:
    wanted = _modes(path.parent)[1]
    if stat.S_IMODE(path.stat().st_mode) != wanted:
        # Another user's, or a file system without permissions.
        with contextlib.suppress(OSError):
            path.chmod(wanted)


def _modes(parent: Path) -> tuple[int, int]:
    """Return the permission bits of the files and folders that are made in a folder."""
    shared = stat.S_ISGID | stat.S_IWGRP
    groups = parent.stat().st_mode & shared == shared
    return (_GROUPS_FILE, _GROUPS_FOLDER) if groups else (_FILE, _FOLDER)


def _new(path: Path) -> int:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE)
    wanted = _modes(path.parent)[0]
    if wanted != _FILE:
        # More than the umask allows: the folder says what is wanted.
        os.fchmod(handle, wanted)
    return handle


@contextlib.contextmanager
def _explained(folder: str) -> Generator[None]:
    """Turn the missing permission of a process into a sentence: it is mostly that of an executor of another user."""
    try:
        yield
    except PermissionError as error:
        raise ConfigurationError(
            f"walDir={folder}: user {os.geteuid()} may not use {error.filename}; run the Spark driver and all "
            "executors as one user, or give the folder to a group of both: chgrp GROUP and chmod 2770 before the first "
            "start",
            option="walDir",
        ) from None


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

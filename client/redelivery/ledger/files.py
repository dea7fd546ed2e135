"""Files of a ledger: created for their owner only, never through a symbolic link, and watched while it is open.

They contain message ids and texts of exceptions. The database of a new ledger gets mode 0600. The files
beside it get the mode of the database, as SQLite does for its own. To share a ledger in a group, set the mode
of the database.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from redelivery.errors import LedgerError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["OpenFiles", "check_local", "kind_of", "make_private", "open_beside"]


# ---- Files -----------------------------------------------------------------------------------------------

_FLAGS = os.O_RDWR | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)


def make_private(path: Path) -> None:
    """Create the database, readable for its owner only, unless it exists. Raises OSError.

    An existing one is not opened: closing it here would drop this process's locks on it.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, 0o600))


def open_beside(path: Path, database: Path, *, new: bool = False) -> int:
    """Open a file beside the database to read and write.

    If it does not exist, it is created with the database's mode.

    Args:
        path: The file.
        database: The database.
        new: True: the file must not exist.

    Raises:
        OSError: It cannot be opened; `ELOOP`: it is a symbolic link.
    """
    try:
        file = os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        if new:
            raise
        # It may have been removed meanwhile, because another process ended: create it again.
        return os.open(path, _FLAGS | os.O_CREAT, 0o600)
    mode = database.stat().st_mode & 0o666
    if mode != 0o600:
        os.fchmod(file, mode)
    return file


class OpenFiles:
    """Files of an open ledger. If one is removed, this process goes on writing to a file that no other one sees."""

    def __init__(self, ledger: Path, paths: Iterable[Path]) -> None:
        """Note which files these are. Raises OSError."""
        self._ledger = ledger
        self._files = {path: _identity(path) for path in paths}

    def check(self) -> None:
        """Raise LedgerError if one of them was removed or replaced."""
        for path, known in self._files.items():
            try:
                same = _identity(path) == known
            except FileNotFoundError:
                same = False
            if not same:
                raise LedgerError(
                    f"the ledger {self._ledger} cannot count: its file {path.name} was removed or replaced while it "
                    "was in use; end all processes that use it, and start them with a ledger in a directory that no "
                    "clean-up empties"
                )


def _identity(path: Path) -> tuple[int, int]:
    known = os.stat(path)
    return known.st_dev, known.st_ino


# ---- Filesystems -----------------------------------------------------------------------------------------
# Check that a file is on a local disk: locks and shared memory do not work across hosts.

_REMOTE = frozenset({
    "9p", "afs", "beegfs", "ceph", "cifs", "coda", "fuse.ceph", "fuse.gcsfuse", "fuse.glusterfs", "fuse.s3fs",
    "fuse.sshfs", "gfs2", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "pvfs2", "smb3", "smbfs",
})  # fmt: skip
MOUNTS = Path("/proc/self/mountinfo")


def check_local(path: Path) -> None:
    """Refuse a file that is known to be on another host's disk. Raises LedgerError."""
    kind = kind_of(path, MOUNTS)
    if kind in _REMOTE:
        raise LedgerError(f"the ledger {path} is on a network file system ({kind}); it needs a local disk")


def kind_of(path: Path, mounts: Path) -> str | None:
    """Return the type of the file system that a file is on; None: the system does not report it."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        parents = {str(parent) for parent in path.absolute().parent.resolve().parents}
        parents.add(str(path.absolute().parent.resolve()))
    except OSError:
        return None
    found: tuple[int, str] | None = None
    for line in lines:
        head, _, tail = line.partition(" - ")
        fields = head.split(" ")
        if len(fields) > 4 and tail:
            point = fields[4].encode("latin-1", "surrogateescape").decode("unicode_escape")
            if point in parents and (found is None or len(point) >= found[0]):
                found = len(point), tail.split(" ")[0]
    return None if found is None else found[1]

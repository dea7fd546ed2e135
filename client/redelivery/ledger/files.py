"""Creation of a ledger's files: for their owner only, and never through a symbolic link.

They contain message ids and texts of exceptions. The database of a new ledger gets mode 0600. The files
beside it get the mode of the database, as SQLite does for its own. To share a ledger in a group, set the mode
of the database.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["make_private", "open_beside"]

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

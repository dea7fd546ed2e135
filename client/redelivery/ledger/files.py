"""How the files of a ledger are made: for their owner alone, and never through a symbolic link.

They hold ids of messages and texts of exceptions. The database of a new ledger gets mode 0600; the files beside it get
the mode of the database, as SQLite gives it to its own: who shares a ledger in a group sets the database's.
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
    """Make the database, if there is none, readable for its owner alone. Raises OSError.

    One that exists is not opened: to close it here would drop this process's locks on it.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, 0o600))


def open_beside(path: Path, database: Path, *, new: bool = False) -> int:
    """Open a file beside the database to read and write; make it, with the database's mode, if there is none.

    `new`: it must not be there. Raises OSError; `ELOOP` for a symbolic link.
    """
    try:
        file = os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        if new:
            raise
        # It may go in between: then another process has just ended, and it is made again.
        return os.open(path, _FLAGS | os.O_CREAT, 0o600)
    mode = database.stat().st_mode & 0o666
    if mode != 0o600:
        os.fchmod(file, mode)
    return file

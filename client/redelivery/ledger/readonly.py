"""Read access to a ledger that is not open here, and may be in use elsewhere.

It creates, locks and changes nothing.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from redelivery.errors import LedgerError
from redelivery.ledger.database import APPLICATION, buried_in

if TYPE_CHECKING:
    from redelivery.core.ledger_entry import Buried

__all__ = ["look"]


def look(path: Path, timeout: float, destination: str | None) -> list[Buried]:
    """Return the causes that a ledger keeps, oldest first. Raises LedgerError, sqlite3.Error, OSError."""
    if not path.exists():
        raise LedgerError(f"the ledger {path} does not exist")
    if not path.is_file():
        raise LedgerError(f"the ledger {path} is not a file")
    if not os.access(path, os.R_OK):
        raise LedgerError(f"the ledger {path} cannot be read: no permission")
    address, log = path.absolute().as_uri(), Path(f"{path}-wal")
    if not log.exists():
        # No process has it open. It is read as an immutable file. Otherwise SQLite leaves files of shared memory
        # behind, or cannot open the database in a directory where it may not create them.
        try:
            found = _read(f"{address}?immutable=1", path, timeout, destination)
        except (sqlite3.Error, LedgerError):
            if not log.exists():
                raise
        else:
            if not log.exists():
                return found
    return _read(f"{address}?mode=ro", path, timeout, destination)  # a process has opened it


def _read(address: str, path: Path, timeout: float, destination: str | None) -> list[Buried]:
    with closing(sqlite3.connect(address, timeout=timeout, uri=True)) as sql:
        if sql.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
            raise LedgerError(f"{path} is not a ledger: it is empty, or the database of another program")
        return buried_in(sql, path, destination)

"""Two processes that write to one database."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import pytest

from redelivery.ledger.database import Database

if TYPE_CHECKING:
    from pathlib import Path


def test_nobody_writes_between_the_read_and_the_write_of_a_revision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is about to write has the lock before it reads the last revision: no number is given twice."""
    one, other = Database(tmp_path / "ledger.db", 0), Database(tmp_path / "ledger.db", 0)
    read = one.revision

    def read_beside_another() -> int:
        found = read()
        with pytest.raises(sqlite3.OperationalError, match="locked"), other.writing():
            pass
        return found

    monkeypatch.setattr(one, "revision", read_beside_another)
    with one.writing() as first:
        pass
    with other.writing() as second:
        pass
    assert (first, second) == (1, 2)
    one.close()
    other.close()

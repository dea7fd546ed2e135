"""Files of a ledger: their modes, and symbolic links in their places."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from redelivery import LedgerError, SqliteLedger
from redelivery.core.ledger_entry import KEY, Entry

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(params=[0o022, 0o000, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    """Set another umask."""
    before = os.umask(request.param)
    yield
    os.umask(before)


def modes(path: Path) -> dict[str, int]:
    """Open a ledger, write to it, and return the modes of its files by the suffix of their name."""
    ledger = SqliteLedger(path)
    ledger.open(print)
    try:
        ledger.end(ledger.begin(b"k" * KEY, 0), b"k" * KEY, Entry(1), failed=True, keep=False)
        return {
            file.name.removeprefix(path.name)[:6]: stat.S_IMODE(file.stat().st_mode)
            for file in path.parent.glob(f"{path.name}*")
        }
    finally:
        ledger.close(print)


@pytest.mark.usefixtures("umask")
def test_a_new_ledger_is_its_owners_alone(tmp_path: Path) -> None:
    """A new ledger's database, log, shared memory, board and marks have mode 0600, with any umask."""
    assert modes(tmp_path / "a.db") == dict.fromkeys(["", "-wal", "-shm", "-board", "-marks"], 0o600)


@pytest.mark.usefixtures("umask")
def test_a_shared_ledger_stays_shared(tmp_path: Path) -> None:
    """A database that a group may write keeps its mode, and the files beside it get it."""
    path = tmp_path / "a.db"
    path.touch()
    path.chmod(0o660)
    assert set(modes(path).values()) == {0o660}


def test_a_link_in_place_of_the_board(tmp_path: Path) -> None:
    """A link in place of the board is not followed: its target is unchanged, and the error names it."""
    victim, path = tmp_path / "victim", tmp_path / "a.db"
    victim.write_bytes(b"IMPORTANT")
    Path(f"{path}-board").symlink_to(victim)
    with pytest.raises(LedgerError, match="a file beside it is a symbolic link"):
        SqliteLedger(path).open(print)
    assert victim.read_bytes() == b"IMPORTANT"


def test_a_link_in_place_of_marks(tmp_path: Path) -> None:
    """A link in place of marks is ignored: the ledger opens, and its target is neither locked nor removed."""
    victim, path = tmp_path / "victim", tmp_path / "a.db"
    victim.write_bytes(bytes(2_000_000))
    Path(f"{path}-marks-0123456789abcdef").symlink_to(victim)
    assert modes(path)[""] == 0o600
    assert victim.stat().st_size == 2_000_000

"""Findings of the doctor on this machine."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from redelivery import SqliteLedger
from redelivery.cli.checks import surroundings

if TYPE_CHECKING:
    from pathlib import Path


from tests.cli.doctor_script import lines


def ledger_line(cli: Any, path: Path | str) -> tuple[str, str]:
    out = cli("doctor", f"memory://x?redelivery.ledger=sqlite:///{path}").out
    return next((level, text) for level, subject, text in lines(out) if subject == "ledger")


def test_ledgers(cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger that exists, one to be created, one that is locked, and a file that is none: each has its finding."""
    path = tmp_path / "ledger.db"
    assert ledger_line(cli, path) == ("ok", f"{path} is made at the first start, on a local disk")
    assert not path.exists()
    ledger = SqliteLedger(path)
    ledger.open(print)
    assert ledger_line(cli, path) == ("ok", f"{path} is on a local disk, and free")
    monkeypatch.setattr(surroundings, "LOCKED", 0.01)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        level, text = ledger_line(cli, path)
        assert (level, "is locked by another process for more than 0.01 s" in text) == ("FAIL", True)
        other.execute("ROLLBACK")
    ledger.close(print)
    (tmp_path / "notes.txt").write_text("not a database")
    assert ledger_line(cli, tmp_path / "notes.txt")[0] == "FAIL"
    assert "its directory does not exist" in ledger_line(cli, tmp_path / "away" / "x.db")[1]
    assert "is not a file" in ledger_line(cli, tmp_path)[1]


def test_a_ledger_on_another_host(cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger on a network file system is a FAIL: locks do not work there."""
    monkeypatch.setattr("redelivery.ledger.files.kind_of", lambda *_: "nfs4")
    level, text = ledger_line(cli, tmp_path / "x.db")
    assert (level, "network file system (nfs4)" in text) == ("FAIL", True)


def test_a_ledger_without_permission(cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger without permission for its directory or its file is a FAIL."""
    monkeypatch.setattr("os.access", lambda *_: False)
    assert "no permission to write in" in ledger_line(cli, tmp_path / "x.db")[1]
    (tmp_path / "x.db").touch()
    monkeypatch.setattr("os.access", lambda path, _: path == tmp_path)
    assert "no permission to read and write it" in ledger_line(cli, tmp_path / "x.db")[1]


@pytest.mark.parametrize(
    ("soft", "hard", "level", "text"),
    [
        (64, 4096, "warn", "raise it with ulimit -n (up to 4096 are allowed)"),
        (64, -1, "warn", "(any number is allowed)"),
        (256, 4096, "ok", "256 files may be open"),
        (-1, -1, "ok", "any number of files may be open"),
    ],
)
def test_open_files(monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, level: str, text: str) -> None:
    """Too few open files are a warning, with a remedy."""
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    found = surroundings.descriptors()
    assert found is not None
    assert (found.level, text in found.text) == (level, True)

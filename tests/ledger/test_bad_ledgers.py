"""Ledgers that are locked, full, read-only, damaged or remote: one clear sentence, and no dispatch."""

from __future__ import annotations

import errno
import os
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

import redelivery
from redelivery import LedgerError, SqliteLedger
from redelivery.ledger import files
from redelivery.ledger.files import kind_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from redelivery.testing import MemoryBroker


def refused(broker: MemoryBroker, ledger: SqliteLedger, text: str) -> None:
    """Check that the connection does not open."""
    connection = redelivery.connect(broker.uri, ledger=ledger)
    with pytest.raises(LedgerError, match=text), connection:
        pytest.fail("it opened")
    assert broker.connections == 0
    marks = list(ledger.path.parent.glob("*-marks-*")) if ledger.path.parent.exists() else []
    assert marks == []


def write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def damage(path: Path) -> None:
    """Make a ledger, and overwrite its middle."""
    ledger = SqliteLedger(path)
    ledger.open(print)
    ledger.close(print)
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    path.write_bytes(data)


def other_program(path: Path) -> None:
    """Make a database of another program."""
    with sqlite3.connect(path) as sql:
        sql.execute("CREATE TABLE customers (name TEXT)")
    sql.close()


@pytest.mark.parametrize(
    ("prepare", "text"),
    [
        (lambda path: write(path, b"no database at all" * 100), "is not an SQLite database"),
        (damage, "is damaged; move it"),
        (other_program, "is the database of another program"),
        (lambda path: path.mkdir(), "cannot be opened"),
        (lambda path: path.parent.rmdir(), "its directory must exist"),
    ],
    ids=["no database", "damaged", "another's", "directory", "nowhere"],
)
def test_what_is_no_ledger(
    redelivery_broker: MemoryBroker, tmp_path: Path, prepare: Callable[[Path], None], text: str
) -> None:
    """A connection with a file that is not a ledger does not open, and leaves the file unchanged."""
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "ledger.db"
    prepare(path)
    refused(redelivery_broker, SqliteLedger(path), text)


def test_a_locked_ledger(redelivery_broker: MemoryBroker, tmp_path: Path) -> None:
    """A ledger that another program locks for longer than the timeout is refused."""
    path = tmp_path / "ledger.db"
    sql = sqlite3.connect(path, isolation_level=None)
    sql.execute("BEGIN EXCLUSIVE")
    refused(
        redelivery_broker, SqliteLedger(path, timeout=0.01), "has been locked by another program for 0.01 s"
    )
    sql.close()


def test_a_disk_that_is_full_or_read_only(
    redelivery_broker: MemoryBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full or read-only disk fails when the marks' file is created.

    Otherwise a page that cannot be written would kill the process later.
    """
    for number, text in (
        (errno.ENOSPC, "cannot grow: its disk is full"),
        (errno.EROFS, "it, or its directory, is read-only"),
    ):

        def fails(*_: object, number: int = number) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, "posix_fallocate", fails)
        refused(redelivery_broker, SqliteLedger(tmp_path / "ledger.db"), text)


def test_a_read_only_database(
    redelivery_broker: MemoryBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read-only ledger is refused: it could be read, but it could not count."""
    path = tmp_path / "ledger.db"
    connect: Any = sqlite3.connect
    connect(path).close()

    def read_only(name: Path, **options: Any) -> Any:
        return connect(f"file:{name}?mode=ro", uri=True, **options)

    monkeypatch.setattr(sqlite3, "connect", read_only)
    refused(redelivery_broker, SqliteLedger(path), "it, or its directory, is read-only")


def test_a_network_file_system(
    redelivery_broker: MemoryBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ledger on a network file system is refused: locks and shared memory do not work across hosts."""
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "1 0 8:1 / / rw - ext4 /dev/sda rw\n"
        f"2 1 0:9 / {tmp_path.resolve()} rw,relatime shared:1 - nfs4 host:/export rw\n"
        "3 1 0:9 / /else where rw - tmpfs none rw\n"
    )
    assert kind_of(tmp_path / "x", mounts) == "nfs4"
    assert kind_of(tmp_path.parent / "x", mounts) == "ext4"
    assert kind_of(tmp_path / "x", tmp_path / "nothing") is None
    monkeypatch.setattr(files, "MOUNTS", mounts)
    refused(redelivery_broker, SqliteLedger(tmp_path / "ledger.db"), r"on a network file system \(nfs4\)")


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        ("PRAGMA max_page_count = 1", "cannot grow: its disk is full"),
        ("PRAGMA query_only = 1", "is read-only"),
    ],
)
def test_it_fails_in_the_middle_of_the_work(
    redelivery_broker: MemoryBroker, tmp_path: Path, statement: str, text: str
) -> None:
    """A ledger that fails stops the consumers with its error.

    Unhandled messages stay on the broker, and failed ones keep their mark.
    """
    ledger = SqliteLedger(tmp_path / "ledger.db")
    for number in range(50):
        redelivery_broker.send("orders", f"{number}" * 1000)
    seen: list[str] = []

    def handle(message: redelivery.Message) -> None:
        seen.append(message.text)
        if len(seen) == 1:
            assert ledger._database is not None
            ledger._database._sql.execute(statement)
        raise ValueError("x" * 900)

    with redelivery.connect(redelivery_broker.uri, ledger=ledger) as connection:
        connection.listen("orders", handle)
        with pytest.raises(LedgerError, match=text):
            connection.run(drain_timeout=5)
    assert redelivery_broker.depth("orders") == 50
    assert redelivery_broker.dead_letters() == []
    with redelivery.connect(redelivery_broker.uri, ledger=ledger) as connection:
        message = connection.consumer("orders").receive(timeout=5)
        assert message is not None
        assert ledger.look_up(bytes(16)) is None


def test_more_open_than_can_be_marked(
    redelivery_broker: MemoryBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer stops when no mark is free, and the message goes back to the broker."""
    monkeypatch.setattr("redelivery.ledger.marks.CAPACITY", 2)
    ledger = SqliteLedger(tmp_path / "ledger.db")
    for number in range(3):
        redelivery_broker.send("orders", str(number))
    with redelivery.connect(redelivery_broker.uri, ledger=ledger) as connection:
        consumer = connection.consumer("orders")
        held = [consumer.receive(timeout=5) for _ in range(2)]
        with pytest.raises(LedgerError, match="cannot mark more than 2 unsettled messages"):
            consumer.receive(timeout=5)
        assert all(message is not None and message.accept() for message in held)
    assert redelivery_broker.depth("orders") == 1

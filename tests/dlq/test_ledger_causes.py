"""Causes in a ledger, of messages that the broker dead-lettered itself."""

from __future__ import annotations

import sqlite3
import threading
import time
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

import redelivery
from redelivery import LedgerError, SqliteLedger
from redelivery.core.delivery import Delivery
from redelivery.core.ledger_entry import Buried
from redelivery.dlq.dead_letter import LedgerCauses

if TYPE_CHECKING:
    from pathlib import Path

    from redelivery.testing import MemoryBroker


class Named(Delivery):
    """Dead letter with an id."""

    def __init__(self, name: str, origin: str | None = None) -> None:
        super().__init__(1, 1, b"")
        self._name, self._origin = name, origin

    @property
    def message_id(self) -> str:
        return self._name

    @property
    def origin(self) -> str | None:
        return self._origin


def remember(path: Path, *buried: Buried) -> SqliteLedger:
    """Return a ledger with these causes, still open."""
    ledger = SqliteLedger(path)
    ledger.open(print)
    for number, one in enumerate(buried):
        ledger.bury(bytes([number]) * 16, one)
    ledger.close(print)
    return ledger


def test_a_ledger_tells(broker: MemoryBroker, bury: Any, tmp_path: Path) -> None:
    """A ledger gives cause, counts, times, and an origin that the broker lacks, to filters and redrives, too."""
    told, silent, other = bury(origin="queue://orders"), bury(), bury()
    own = bury(origin="queue://orders", cause="OSError: own")
    remember(
        tmp_path / "a.db",
        Buried("queue://orders", told, "KeyError: old", 1, 10.0),
        Buried("queue://orders", told, "ValueError: 7", 7, 20.0, 12.0, 19.0),
        Buried("queue://bills", silent, "crash", 2, 30.0),
        Buried("queue://a", other, "A", 1, 1.0),
        Buried("queue://b", other, "B", 1, 1.0),
        Buried("queue://orders", own, "never", 1, 1.0),
        Buried("queue://orders", None, "whose", 1, 1.0),
    )
    url = f"sqlite:///{tmp_path}/a.db"
    for uri, options in ((broker.uri, {"ledger": url}), (f"{broker.uri}?redelivery.ledger={url}", {})):
        with redelivery.dead_letters(uri, **options) as tools:  # type: ignore[arg-type]
            first, second, third, fourth = tools
            assert (first.cause, first.redelivery_count) == ("ValueError: 7", 7)
            assert first.first_failure == datetime.fromtimestamp(12, UTC)
            assert first.died_at == datetime.fromtimestamp(19, UTC)
            assert (second.cause, second.original_destination) == ("crash", "queue://bills")
            assert second.died_at == datetime.fromtimestamp(30, UTC)
            assert (third.cause, third.original_destination) == ("unknown", None), "two may be meant"
            assert (fourth.cause, fourth.redelivery_count) == ("OSError: own", None)
            assert [group.cause for group in tools.summary(destination="bills")] == ["crash"]
            assert tools.redrive(cause="crash", dry_run=True).destinations == {"queue://bills": 1}
    with redelivery.dead_letters(broker.uri, ledger=url, cause_of=lambda _, __: "mine") as tools:
        assert tools.show(told).cause == "mine"
    with redelivery.dead_letters(broker.uri, ledger=url) as tools:
        assert tools.redrive(cause=["crash", "ValueError"]).redriven == 2
    assert (broker.depth("bills"), broker.depth("orders"), broker.depth("DLQ")) == (1, 1, 2)


def test_looking_changes_nothing(broker: MemoryBroker, bury: Any, tmp_path: Path) -> None:
    """A ledger in use is read without a change: no file of marks is created, and no entry modified."""
    path, identity = tmp_path / "a.db", bury()
    ledger = SqliteLedger(path)
    ledger.open(print)
    before = sorted(tmp_path.iterdir())
    other = SqliteLedger(path)
    with redelivery.dead_letters(broker.uri, ledger=other) as tools:
        assert tools.show(identity).cause == "unknown"
        ledger.bury(b"k" * 16, Buried("queue://orders", identity, "crash", 1, 1.0))
        written = threading.Event()
        while not written.wait(0.001) and not other.buried():
            pass
        assert tools.show(identity).cause == "crash"
        assert not other.in_use
    assert sorted(tmp_path.iterdir()) == before
    ledger.close(print)


def test_a_death_without_a_date_is_not_of_1970(broker: MemoryBroker, bury: Any, tmp_path: Path) -> None:
    """A cause that was kept by a clock before 1970 gives no time of death: that of the dead letter counts."""
    told, plain = bury(origin="queue://orders"), bury(origin="queue://orders")
    remember(tmp_path / "a.db", Buried("queue://orders", told, "crash", 2, -50.0, -90.0, -60.0))
    with redelivery.dead_letters(broker.uri, ledger=f"sqlite:///{tmp_path}/a.db") as tools:
        letter = tools.show(told)
        assert (letter.cause, letter.redelivery_count, letter.first_failure) == ("crash", 2, None)
        other = tools.show(plain).died_at
        assert (letter.died_at is None) == (other is None)
        assert letter.died_at is None or letter.died_at.year > 1970


def make(path: Path, kind: str) -> None:
    """Create a file that is no ledger."""
    if kind == "text":
        path.write_text("no database" * 100)
    elif kind == "empty":
        path.touch()
    elif kind == "directory":
        path.mkdir()
    elif kind == "other":
        with sqlite3.connect(path) as sql:
            sql.execute("CREATE TABLE customers (name TEXT)")
        sql.close()
    elif kind == "damaged":
        remember(path, Buried("queue://orders", "x", "crash", 1, 1.0))
        data = path.read_bytes()
        path.write_bytes(data[:4096] + b"\xff" * (len(data) - 4096))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("missing", "does not exist"),
        ("text", "is not an SQLite database"),
        ("empty", "is not a ledger: it is empty"),
        ("directory", "is not a file"),
        ("other", "is not a ledger: it is empty, or the database of another program"),
        ("damaged", "is damaged"),
    ],
)
def test_what_is_no_ledger(broker: MemoryBroker, tmp_path: Path, kind: str, text: str) -> None:
    """A file that is no ledger is one sentence, before a connection; no file is created or changed."""
    path = tmp_path / "a.db"
    make(path, kind)
    before = {one: one.read_bytes() for one in tmp_path.iterdir() if one.is_file()}
    tools = redelivery.dead_letters(broker.uri, ledger=f"sqlite:///{path}")
    with pytest.raises(LedgerError, match=text), tools:
        pytest.fail("it opened")
    assert {one: one.read_bytes() for one in tmp_path.iterdir() if one.is_file()} == before
    assert broker.connections == 0


def test_a_ledger_that_was_made_before_there_were_times(tmp_path: Path) -> None:
    """A ledger without columns for times is read as it is, and gets the columns when a consumer uses it."""
    path, now = tmp_path / "a.db", time.time()
    remember(path, Buried("queue://orders", "x", "crash", 1, now, 2.0, 3.0))
    with sqlite3.connect(path) as sql:
        for name in ("first", "last"):
            sql.execute(f"ALTER TABLE dead_letters DROP COLUMN {name}")
    sql.close()
    old = Buried("queue://orders", "x", "crash", 1, now)
    assert SqliteLedger(path).buried() == [old]
    new = Buried("queue://bills", "y", "crash", 1, now, 2.0, 3.0)
    remember(path, new)
    assert SqliteLedger(path).buried() == [old, new]
    assert SqliteLedger(path).buried("queue://bills") == [new]


def test_an_id_that_others_may_have_too_is_not_enough(
    broker: MemoryBroker, bury: Any, tmp_path: Path
) -> None:
    """Producers count "1", "2" in more than one queue: without an origin such an id matches nothing."""
    cases = {"1": None, "order-2": None, "ID:host-1": "queue://bills", str(uuid.uuid4()): "queue://bills"}
    remember(tmp_path / "a.db", *(Buried("queue://bills", name, "crash", 1, 1.0) for name in cases))
    memories = LedgerCauses(SqliteLedger(tmp_path / "a.db"))
    memories.refresh()
    for name, origin in cases.items():
        assert memories.origin(Named(name)) == origin
        assert memories.of(Named(name, "queue://bills")) is not None, "where it came from is told"

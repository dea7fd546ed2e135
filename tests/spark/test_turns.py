"""Limits of a batch, turns of its lanes, and the files written with a batch."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

from tests.spark.conftest import FAST, HOURS
from tests.spark.query import Query, Row, fails_bad

from redelivery_spark.wal.checked_file import publish_checked, read_json

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

    from redelivery.testing import ManualClock, MemoryBroker


def test_more_failures_than_a_batch_has_messages(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], redelivery_clock: ManualClock
) -> None:
    """Each failed delivery is charged, also if rows become due while others fail."""
    query = make_query(maxRowsPerTrigger=1)
    redelivery_broker.send("orders", "bad-1")
    seen: Counter[bytes] = Counter()

    def handler(row: Row) -> None:
        seen[row["body"]] += 1
        redelivery_clock.advance(1.5)
        fails_bad(row)

    query.step(handler)
    redelivery_broker.send("orders", "bad-2")
    for _ in range(3):
        redelivery_broker.send("orders", "good")
    query.drain(handler)
    assert (seen[b"bad-1"], seen[b"bad-2"]) == (3, 3)


def test_a_clock_that_was_ahead(redelivery_broker: MemoryBroker, make_query: Callable[..., Query]) -> None:
    """After a restart no row waits for longer than its delay."""
    query = make_query()
    redelivery_broker.send("orders", "flaky")
    query.step(fails_bad)
    query.step(fails_bad)
    query.die()
    (name,) = query.store.names("state")
    told = read_json(query.store, name)
    told["facts"][0][2] += 10 * 365 * 86400  # ten years ahead at that time
    query.store.remove([name])
    publish_checked(query.store, name, json.dumps(told).encode())
    for _ in range(30):
        query.step(fails_bad)
    assert query.bodies() == ["flaky"]


def test_an_expired_row_leaves_nothing_behind(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], redelivery_clock: ManualClock
) -> None:
    """The facts of a row that expires while it waits are removed with it."""
    query = make_query(uri=FAST + "&redelivery.processExpired=false")
    redelivery_broker.send("orders", "bad-1", expires_at=redelivery_clock.time() + 0.5)
    query.step(fails_bad)
    query.step(fails_bad)
    redelivery_clock.advance(30)
    query.drain(fails_bad)
    journal = query.start()._journal
    assert not journal.redeliveries.held
    assert not journal.redeliveries.ledger.entries


def test_rows_that_wait_are_written_once(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], tmp_path: Path
) -> None:
    """A row that waits is written once; its file is removed when none of its rows waits any more."""
    query = make_query()
    for number in range(3):
        redelivery_broker.send("orders", f"bad-{number}" + "x" * 10_000)
    query.step(fails_bad)
    query.step(fails_bad)
    rows = tmp_path / "wal" / "rows"
    (written,) = rows.iterdir()
    before = written.stat().st_mtime_ns
    while (redelivered := query.step(fails_bad)) is None or not redelivered:
        pass
    query.step(fails_bad)
    assert written.stat().st_mtime_ns == before
    assert all(state.stat().st_size < 6000 for state in (tmp_path / "wal" / "state").iterdir())
    query.drain(fails_bad)
    assert not list(rows.iterdir())


def test_bytes_of_rows_that_are_due_count(
    redelivery_broker: MemoryBroker,
    make_query: Callable[..., Query],
    redelivery_clock: ManualClock,
    segments_of: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """MaxBytesPerTrigger limits a batch with redeliveries, too, whose segments have their own limits."""
    segments_of(1)
    monkeypatch.setattr("redelivery_spark.stream.journal.MOST_BYTES", 3000)
    query = make_query(maxBytesPerTrigger=5000, maxRowsPerTrigger=100)
    for _ in range(12):
        redelivery_broker.send("orders", "bad" + "x" * 1997)
    sizes: list[int] = []
    for _ in range(60):
        rows = query.step(fails_bad)
        redelivery_clock.advance(1)
        sizes.append(len(rows or ()))
    assert 2 <= max(sizes) <= 3
    assert len(redelivery_broker.dead_letters()) == 12


def test_too_much_waits(
    redelivery_broker: MemoryBroker,
    make_query: Callable[..., Query],
    caplog: pytest.LogCaptureFixture,
    segments_of: Callable[[int], None],
) -> None:
    """Above maxParked no new message is in a batch; the log and the query's progress report it."""
    segments_of(1)
    query = make_query(uri=HOURS + "&redelivery.maxParked=2", maxRowsPerTrigger=2)
    for number in range(6):
        redelivery_broker.send("orders", f"bad-{number}")
    for _ in range(10):
        query.step(fails_bad)
    report = query.start().report()
    assert report is not None
    assert (report["full"], report["waiting"]) == (True, 2)
    assert caplog.text.count("no new messages are processed until fewer than 2 wait") == 1


def test_when_less_waits_fresh_rows_go_on(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], segments_of: Callable[[int], None]
) -> None:
    """New messages are processed when fewer rows wait, and none is lost."""
    segments_of(1)
    query = make_query(uri=FAST + "&redelivery.maxParked=1", maxRowsPerTrigger=1)
    for body in ("flaky-1", "flaky-2", "good-1", "good-2"):
        redelivery_broker.send("orders", body)
    query.drain(fails_bad)
    assert sorted(query.bodies()) == ["flaky-1", "flaky-2", "good-1", "good-2"]


def test_too_many_bytes_wait(
    redelivery_broker: MemoryBroker,
    make_query: Callable[..., Query],
    monkeypatch: pytest.MonkeyPatch,
    segments_of: Callable[[int], None],
) -> None:
    """Large messages wait in smaller numbers: rows that wait are in memory."""
    segments_of(1)
    monkeypatch.setattr("redelivery_spark.stream.coordinator.MOST_WAITING", 250)
    query = make_query(uri=HOURS, maxRowsPerTrigger=1)
    for number in range(6):
        redelivery_broker.send("orders", f"bad-{number}".ljust(100))
    for _ in range(10):
        query.step(fails_bad)
    report = query.start().report()
    assert report is not None
    assert (report["full"], report["waiting"]) == (True, 3)

"""Limits of a batch, whose turn it is, and what is written with a batch."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from tests.spark.conftest import FAST, HOURS
from tests.spark.query import Killed, KillsQuery, Query, Row, fails_bad

from redelivery_spark.wal.records import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from redelivery.testing import ManualClock, MemoryBroker


def test_more_failures_than_a_batch_has_messages(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], redelivery_clock: ManualClock
) -> None:
    """Each delivery that fails is charged, also where rows are due while others fail."""
    query = make_query(maxMessagesPerTrigger=1)
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


def test_a_lower_limit_after_a_restart(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], redelivery_clock: ManualClock
) -> None:
    """A batch on its way that is larger than the new limit is settled as a whole."""
    query = make_query(maxMessagesPerTrigger=10)
    for number in range(5):
        redelivery_broker.send("orders", f"late-{number}")

    def handler(row: Row) -> None:
        if row["delivery_count"] < 2:
            raise ValueError

    query.step(handler)
    query.step(handler)
    redelivery_clock.advance(1.5)
    query.planned = query.start().latest(query.committed, 10)
    assert query.planned > query.committed
    query.die()
    query.options = make_query(maxMessagesPerTrigger=1).options
    query.drain(handler)
    assert Counter(query.bodies()) == Counter(f"late-{number}" for number in range(5))


def test_bytes_of_rows_that_are_due_count(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], redelivery_clock: ManualClock
) -> None:
    """MaxBytesPerTrigger bounds a batch with redeliveries too."""
    query = make_query(maxBytesPerTrigger=250, maxMessagesPerTrigger=100)
    for _ in range(12):
        redelivery_broker.send("orders", "bad" + "x" * 97)
    sizes: list[int] = []
    for _ in range(60):
        rows = query.step(fails_bad)
        redelivery_clock.advance(1)
        sizes.append(len(rows or ()))
    assert max(sizes) == 3


def test_slices_are_written_with_the_batch(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query]
) -> None:
    """Another value of `partitions` does not change those of a batch on its way."""
    query = make_query()
    for number in range(8):
        redelivery_broker.send("orders", f"good-{number}")
    query.planned = query.start().latest(0, 10)
    before = query.start().slices(1)
    assert len(before) == 2
    query.die()
    query.options = make_query(partitions=4).options
    assert query.start().slices(1) == before


def test_verdicts_of_a_batch_that_is_settled(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query]
) -> None:
    """Left behind by a death, they are not applied to a later delivery."""
    query = make_query()
    redelivery_broker.send("orders", "late")
    query.step()
    query.records.forget(query.records.verdicts(0)[1])
    message_id = query.output.pop(1)[0]["message_id"]
    query.records.judge("000000000000-0", {message_id: Refusal(1, "defer", "x", 1.0)})

    def killed(_: object) -> None:
        raise Killed

    query.start()._journal.records.forget = killed  # type: ignore[assignment,method-assign]
    with pytest.raises(Killed):
        query.step()
    query.die()
    query.drain()
    assert query.bodies() == ["late"]


def test_verdicts_of_a_batch_that_was_given_up(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query]
) -> None:
    """A task that ends after its batch was split says nothing about the groups."""
    for number in range(4):
        redelivery_broker.send("orders", "killer" if number == 3 else f"good-{number}")
    query = make_query(uri=FAST + "&redelivery.maximumDeferrals=2")
    source = query.start()
    query.planned = source.latest(0, 10)
    rows = [row for part in source.slices(1) for row in query._read(*part)]
    with pytest.raises(KillsQuery):
        query.step(fails_bad, evidence=True)
    query.step(fails_bad, evidence=True)  # the empty replay
    query.records.judge("000000000000-000000-late", {rows[0]["message_id"]: Refusal(1, "fail", "timeout")})
    query.drain(fails_bad, evidence=True)
    assert Counter(query.bodies()) == Counter(f"good-{number}" for number in range(3))


def test_a_clock_that_was_ahead(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], tmp_path: Path
) -> None:
    """After a restart nothing waits for longer than it was to wait."""
    query = make_query()
    redelivery_broker.send("orders", "flaky")
    query.step(fails_bad)
    query.step(fails_bad)
    query.die()
    (state,) = (tmp_path / "wal" / "state").glob("*.json")
    told = json.loads(state.read_text())
    told["facts"][0][2] += 10 * 365 * 86400  # it was ten years ahead when that failed
    state.write_text(json.dumps(told))
    for _ in range(30):
        query.step(fails_bad)
    assert query.bodies() == ["flaky"]


def test_decode_is_switched_on(redelivery_broker: MemoryBroker, make_query: Callable[..., Query]) -> None:
    """What waits is decoded when it comes again."""
    query = make_query()
    redelivery_broker.send("orders", "flaky")
    query.step(fails_bad)
    query.step(fails_bad)
    query.die()
    query.options = make_query(decode="text").options
    query.drain()
    assert [row["text"] for rows in query.output.values() for row in rows] == ["flaky"]


def test_an_expired_row_leaves_nothing_behind(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], redelivery_clock: ManualClock
) -> None:
    """What is known of a row that expires while it waits goes with it."""
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
    """A state is a file of facts; a row's file goes when none of its rows waits any more."""
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


def test_too_much_waits(
    redelivery_broker: MemoryBroker,
    make_query: Callable[..., Query],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Past maxParked nothing fresh is taken, which the log and the query's progress say."""
    query = make_query(uri=HOURS + "&redelivery.maxParked=2", maxMessagesPerTrigger=2)
    for number in range(6):
        redelivery_broker.send("orders", f"bad-{number}")
    for _ in range(10):
        query.step(fails_bad)
    report = query.start().report()
    assert report is not None
    assert report["full"]
    assert report["parked"] == 2
    assert caplog.text.count("nothing fresh is taken until there are fewer than 2") == 1


def test_too_many_bytes_wait(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits is in memory, so large messages wait in smaller numbers."""
    monkeypatch.setattr("redelivery_spark.stream.coordinator.MOST_WAITING", 250)
    query = make_query(uri=HOURS, maxMessagesPerTrigger=1)
    for number in range(6):
        redelivery_broker.send("orders", f"bad-{number}".ljust(100))
    for _ in range(10):
        query.step(fails_bad)
    report = query.start().report()
    assert report is not None
    assert (report["full"], report["parked"]) == (True, 3)


def test_suspects_take_turns_with_the_others(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query]
) -> None:
    """A message that kills the query does not keep fresh ones waiting."""
    query = make_query(
        uri="jms.redeliveryPolicy.redeliveryDelay=0&jms.redeliveryPolicy.initialRedeliveryDelay=0"
    )
    redelivery_broker.send("orders", "killer")
    for number in range(10):
        try:
            query.step(fails_bad, evidence=True)
        except KillsQuery:
            redelivery_broker.send("orders", f"good-{number}")
    assert len(query.bodies()) >= 2


def test_bytes_that_are_due_are_no_task_s_to_take(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], redelivery_clock: ManualClock
) -> None:
    """Rows that come again, what the driver has, and what tasks take keep within the bytes of a batch together."""
    query = make_query(consumers="executors", maxBytesPerTrigger=1000, maxMessagesPerTrigger=100)
    for n in range(60):
        redelivery_broker.send("orders", f"bad-{n:02}".ljust(100))
    sizes = list[int]()
    for _ in range(60):
        sizes.append(sum(len(row["body"]) for row in query.step(fails_bad) or ()))
        redelivery_clock.advance(0.5)
    assert max(sizes) <= 1000 + 3 * 100  # a last one of each task, and of the driver


def test_what_is_ahead_has_a_limit_in_bytes(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query]
) -> None:
    """No more is taken ahead of a batch than a batch may have, also while nothing fresh is taken."""
    query = make_query(
        uri=HOURS, maxMessagesPerTrigger=100, maxBytesPerTrigger=1000, **{"redelivery.maxParked": 2}
    )

    def fails(_: Row) -> None:
        raise ValueError

    for _ in range(1000):
        redelivery_broker.send("orders", bytes(500))
    for _ in range(100):
        query.step(fails)
    assert query.source is not None
    assert len(query.source._fresh) == 2

"""Batches, verdicts, restarts and deaths of a query, in virtual time."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from tests.spark.conftest import FAST
from tests.spark.query import Killed, Query, Row, fails_bad, readers_of

from redelivery.errors import ConfigurationError
from redelivery_spark.wal.checked_file import HEAD, publish_checked

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from redelivery.testing import ManualClock, MemoryBroker


def fill(broker: MemoryBroker, count: int, **bad: int) -> None:
    """Send numbered messages; `bad` maps a prefix to the number of the message that has it."""
    at = {number: prefix for prefix, number in bad.items()}
    for number in range(count):
        broker.send("orders", f"{at.get(number, 'good')}-{number}")


def test_all_messages_come_in_batches(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], segments_of: Callable[[int], None]
) -> None:
    """Each message is in one batch of whole segments, no batch is larger than the limit, and none is empty."""
    segments_of(4)
    fill(redelivery_broker, 26)
    query = make_query(maxRowsPerTrigger=10)
    query.drain()
    assert [len(rows) for rows in query.output.values()] == [8, 8, 10]
    assert query.bodies() == [f"good-{n}" for n in range(26)]
    assert redelivery_broker.depth("orders") == 0


def test_a_segment_above_the_limit_is_a_batch(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], segments_of: Callable[[int], None]
) -> None:
    """A lowered limit does not keep larger segments of the log out."""
    segments_of(6)
    fill(redelivery_broker, 12)
    query = make_query(maxRowsPerTrigger=2)
    query.drain()
    assert [len(rows) for rows in query.output.values()] == [6, 6]


def test_a_batch_ends_before_its_bytes(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], segments_of: Callable[[int], None]
) -> None:
    """MaxBytesPerTrigger limits a batch by the size of its segments."""
    segments_of(1)
    for _ in range(6):
        redelivery_broker.send("orders", "x" * 2000)
    query = make_query(maxBytesPerTrigger=8000)
    query.drain()
    assert [len(rows) for rows in query.output.values()] == [3, 3]


def test_failing_rows_are_redelivered_and_poisoned(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], redelivery_clock: ManualClock
) -> None:
    """A row that fails is delivered after its delay; after its last redelivery it is a dead letter with its cause."""
    fill(redelivery_broker, 30, bad=7, flaky=9)
    query = make_query()
    seen: list[tuple[str, int, float]] = []

    def handler(row: Row) -> None:
        if not row["body"].startswith(b"good"):
            seen.append((row["body"].decode(), row["delivery_count"], redelivery_clock.monotonic()))
        fails_bad(row)

    query.drain(handler)
    assert Counter(query.bodies()) == Counter(
        f"{'flaky' if n == 9 else 'good'}-{n}" for n in range(30) if n != 7
    )
    (dead,) = redelivery_broker.dead_letters()
    assert (dead.body, dead.headers["redeliveryCount"], dead.headers["redeliveryCause"]) == (
        b"bad-7", "3", "ValueError('bad-7')",
    )  # fmt: skip
    for name in ("bad-7", "flaky-9"):
        times = [at for body, _, at in seen if body == name]
        assert [count for body, count, _ in seen if body == name] == [1, 2, 3]
        assert times[1] - times[0] >= 1.0
        assert times[2] - times[1] >= 2.0


def test_rows_die_where_their_destination_and_their_exception_say(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query]
) -> None:
    """The map of the URI, and a classifier before it, choose where the dead letter of a row goes."""
    fill(redelivery_broker, 10, bad=3, wrong=5)
    query = make_query(uri=f"{FAST}&redelivery.deadLetterMap.orders.destination=orders.dead")
    query.classifier.poison(KeyError, to="orders.invalid")

    def handler(row: Row) -> None:
        if row["body"].startswith(b"wrong"):
            raise KeyError(row["body"].decode())
        fails_bad(row)

    query.drain(handler)
    (dead,), (invalid,) = (redelivery_broker.messages(f"orders.{place}") for place in ("dead", "invalid"))
    assert (dead.body, dead.headers["redeliveryCount"]) == (b"bad-3", "3")
    assert (invalid.body, invalid.headers["redeliveryCause"]) == (b"wrong-5", "KeyError: 'wrong-5'")
    assert redelivery_broker.dead_letters() == []


def test_a_redelivered_row_says_so(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], redelivery_clock: ManualClock
) -> None:
    """A redelivered row has its id and another place; `delivered_at` is the time of this delivery."""
    redelivery_broker.send("orders", "flaky")
    query = make_query()
    rows: list[Row] = []

    def handler(row: Row) -> None:
        rows.append(row | {"now": redelivery_clock.time()})
        fails_bad(row)

    query.drain(handler)
    assert [row["redelivered"] for row in rows] == [False, True, True]
    assert len({row["message_id"] for row in rows}) == 1
    assert len({row["_place"] for row in rows}) == 3
    for row in rows:
        assert 0 <= row["now"] - row["delivered_at"].timestamp() < 1.0


def test_a_restart_keeps_counts_and_times(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], redelivery_clock: ManualClock
) -> None:
    """A query that is killed while rows wait keeps their counts and due times."""
    fill(redelivery_broker, 3, bad=1)
    query = make_query()
    at: list[float] = []

    def handler(row: Row) -> None:
        if row["body"].startswith(b"bad"):
            at.append(redelivery_clock.monotonic())
        fails_bad(row)

    for _ in range(40):
        query.step(handler)
        query.step(handler)
        query.die()
        if redelivery_broker.dead_letters():
            break
    assert len(at) == 3
    assert at[1] - at[0] >= 1.0
    assert at[2] - at[1] >= 2.0
    assert redelivery_broker.dead_letters()[0].headers["redeliveryCount"] == "3"


@pytest.mark.parametrize("point", ["publish", "accept", "planned", "read", "committed"])
def test_a_death_loses_nothing(
    redelivery_broker: MemoryBroker,
    make_query: Callable[..., Query],
    segments_of: Callable[[int], None],
    point: str,
) -> None:
    """A query that is killed before or after the log is written, or before or after Spark knows the batch, loses
    nothing.
    """
    segments_of(2)
    query = make_query(maxRowsPerTrigger=4)
    fill(redelivery_broker, 20, bad=3)
    query.step(fails_bad)
    fill(redelivery_broker, 6)
    source = query.start()

    def killed(*_: object) -> None:
        raise Killed

    if point in ("publish", "accept"):
        reader = readers_of(source).reader
        owner = reader.lane if point == "publish" else reader._source
        setattr(owner, point, killed)
        with pytest.raises(Killed):
            query.drain(fails_bad)
    elif point in ("planned", "read"):
        assert query.plan()
        if point == "read":
            query.read()
    else:
        query.step(fails_bad)
    query.die()
    query.drain(fails_bad)
    assert Counter(query.bodies()) == Counter(
        f"good-{n}" for n in [*range(20), *range(6)] if (n != 3)
    ) + Counter(["good-3"])
    assert [dead.body for dead in redelivery_broker.dead_letters()] == [b"bad-3"]
    assert redelivery_broker.depth("orders") == 0


def test_a_row_that_waits_for_long_keeps_no_others_on_the_disk(
    redelivery_broker: MemoryBroker,
    make_query: Callable[..., Query],
    redelivery_clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The rest of a row's file is written anew, and a restart has the row's bytes and its count."""
    monkeypatch.setattr("redelivery_spark.wal.wal_state.MOST_WASTE", 10_000)
    query = make_query()

    def handler(row: Row) -> None:
        if row["body"].startswith(b"late") or row["delivery_count"] == 1:
            raise ValueError

    redelivery_broker.send("orders", "late" + "x" * 1000)
    for _ in range(30):
        redelivery_broker.send("orders", "x" * 1000)
    query.step(handler)
    query.plan()
    (before,) = query.store.names("rows")
    query.step(handler)
    query.plan()
    assert len(query.bodies()) == 30
    (after,) = query.store.names("rows")
    assert after != before
    assert len(query.store.read(after) or b"") < 5000
    query.die()
    query.drain(handler)
    (dead,) = redelivery_broker.dead_letters()
    assert dead.body == b"late" + b"x" * 1000
    assert dead.headers["redeliveryCount"] == "3"
    del redelivery_clock


def test_what_is_ahead_is_given_out_in_the_next_batch(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query]
) -> None:
    """Rows that were accepted before the process ended, and were in no batch, are in the log."""
    query = make_query()
    fill(redelivery_broker, 3)
    query.read_ahead()
    assert redelivery_broker.depth("orders") == 0
    query.die()
    query.drain()
    assert query.bodies() == [f"good-{n}" for n in range(3)]


def test_lanes_of_readers_that_are_gone_are_still_read(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], tmp_path: Path
) -> None:
    """A start with fewer readers loses no rows of the others."""
    query = make_query()
    fill(redelivery_broker, 3)
    query.read_ahead()
    query.die()
    query.store.prepare("s4")
    for path in (tmp_path / "wal" / "s1").iterdir():
        # Its checksum has its name.
        publish_checked(query.store, f"s4/{path.name}", path.read_bytes()[HEAD:])
        path.unlink()
    redelivery_broker.send("orders", "fresh")
    query.drain()
    assert sorted(query.bodies()) == ["fresh", *(f"good-{n}" for n in range(3))]
    assert set(query.committed) == {0, 1, 4}
    query.die()
    redelivery_broker.send("orders", "later")
    query.drain()
    assert query.bodies()[-1] == "later"


def test_a_log_without_its_checkpoint(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], segments_of: Callable[[int], None]
) -> None:
    """A new checkpoint over an old log is refused, and so is an old checkpoint."""
    segments_of(1)
    fill(redelivery_broker, 6, bad=2)
    query = make_query(maxRowsPerTrigger=1)
    for _ in range(4):
        query.step(fails_bad)
    query.die()
    with pytest.raises(ConfigurationError, match="this query has a new checkpoint"):
        (other := make_query()).start().check_new()
    other.die()
    query.committed = query.planned = {1: 1}
    with pytest.raises(
        ConfigurationError, match=r"settled up to \{0: 1, 1: 3\}, and the checkpoint only up to \{1: 1\}"
    ):
        query.step()


def test_a_batch_whose_segments_are_gone(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], tmp_path: Path
) -> None:
    """A batch with missing segments is refused: none of its rows is left out silently."""
    fill(redelivery_broker, 3)
    query = make_query()
    assert query.plan()
    query.die()
    (tmp_path / "wal" / "s1" / "000000000001.arrow").unlink()
    with pytest.raises(
        ConfigurationError, match=r"segments of lane 1 after 0 are missing; the checkpoint is older"
    ):
        query.step()


def test_an_unwritable_folder(redelivery_broker: MemoryBroker, tmp_path: Path) -> None:
    """A folder that cannot be written is refused by name."""
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(ConfigurationError, match=f"walDir={file}/wal: cannot be written: Not a directory"):
        Query(redelivery_broker, file / "wal").start()


def test_the_progress_of_a_query(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], segments_of: Callable[[int], None]
) -> None:
    """A query's progress has the rows ahead, the rows that wait and until when, and the totals, also over restarts."""
    segments_of(2)
    fill(redelivery_broker, 6, bad=0)
    query = make_query(maxRowsPerTrigger=2)
    source = query.start()
    assert source.report() is None
    query.read_ahead()
    query.step(fails_bad)
    query.step(fails_bad)
    report = source.report()
    assert report is not None
    assert (report["waiting"], report["accepted"], report["connected"], report["full"]) == (1, 1, True, False)
    assert 0 < report["nextDue"] <= 1.0  # type: ignore[operator]
    assert report["ahead"] == {"0": 0, "1": 4}
    assert report["aheadBytes"] == source._journal.lanes.ahead > 0
    query.die()
    query.drain(fails_bad)
    report = query.start().report()
    assert report is not None
    assert (report["redelivered"], report["deadLettered"], report["accepted"]) == (2, 1, 5)
    assert (report["waiting"], report["nextDue"], report["ahead"]) == (0, None, {"0": 0, "1": 0})

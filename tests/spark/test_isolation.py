"""isolate=split: a batch that fails repeatedly is replayed empty, and its rows are tried again in groups."""

from __future__ import annotations

import contextlib
import functools
import operator
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from tests.spark.conftest import FAST
from tests.spark.query import Killed, KillsQuery, Query, Row, fails_bad

from redelivery_spark.wal.records import DIED, Refusal, Verdict, verdict_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery.testing import ManualClock, MemoryBroker

SPLIT = {"isolate": "split", "isolateAfter": 2}
Deaths = "pytest.MonkeyPatch"


def fill(broker: MemoryBroker, count: int, **bad: int) -> None:
    """Send numbered messages; `bad` maps a prefix to the number of the message that has it."""
    at = {number: prefix for prefix, number in bad.items()}
    for number in range(count):
        broker.send("orders", f"{at.get(number, 'good')}-{number}")


def fail(query: Query, times: int) -> None:
    """Run the batch so often with a failure, and mark each."""
    for _ in range(times):
        with pytest.raises(KillsQuery):
            query.step(_down, evidence=True)


def _down(row: Row) -> None:
    raise KillsQuery(row["body"].decode())


def _late(row: Row) -> None:
    if row["body"] == b"late" and row["delivery_count"] == 1:
        raise ValueError


def test_after_so_many_failures_its_rows_come_in_eight_groups(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], caplog: pytest.LogCaptureFixture
) -> None:
    """The replay is empty; each group is a batch, with the rows in their order, uncharged."""
    fill(redelivery_broker, 20)
    query = make_query(**SPLIT)
    fail(query, 2)
    assert query.step() == []
    assert (
        "a batch of 20 messages failed repeatedly (good-0); its messages are tried again in 8 groups"
        in caplog.text
    )
    redelivery_broker.send("orders", "fresh")
    query.drain()
    sizes = [len(rows) for rows in query.output.values()]
    assert sorted(sizes) == [0, 1, 2, 2, 2, 2, 3, 3, 3, 3]
    groups = [rows for rows in query.output.values() if rows and rows[0]["body"] != b"fresh"]
    assert [row["body"].decode() for rows in groups for row in rows] == [f"good-{n}" for n in range(20)]
    assert all(row["delivery_count"] == 1 for rows in groups for row in rows)


def test_one_failure_less_changes_nothing(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query]
) -> None:
    """One failure less leaves the batch whole, and its marks are removed with it."""
    fill(redelivery_broker, 6)
    query = make_query(**SPLIT)
    fail(query, 1)
    assert len(query.step() or []) == 6
    fill(redelivery_broker, 6)
    query.step()
    query.commit()
    assert query.records.failures() == []


def test_marks_of_a_batch_that_went_through_are_no_evidence_against_the_next(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], segments_of: Callable[[int], None]
) -> None:
    """A mark that was made just before a batch succeeded does not count against the next one."""
    segments_of(3)
    fill(redelivery_broker, 6)
    query = make_query(maxRowsPerTrigger=3, **SPLIT)
    query.step()
    for _ in range(3):
        query.records.fail("before it went through")
    assert query.plan()
    query.die()
    assert len(query.step() or []) == 3


@pytest.mark.ci("hundreds of restarts: 0.2 and 1.5 s")
@pytest.mark.parametrize("wait", [False, True])
def test_a_killer_is_found_in_smaller_and_smaller_groups(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], *, wait: bool
) -> None:
    """A killer is charged alone, and dead-lettered; all other rows pass once, uncharged."""
    fill(redelivery_broker, 100, killer=42)
    query = make_query(uri=f"{FAST}&redelivery.maximumDeferrals=3", **SPLIT)
    deliveries: Counter[str] = Counter()

    def handler(row: Row) -> None:
        deliveries[row["body"].decode()] = max(deliveries[row["body"].decode()], row["delivery_count"])
        fails_bad(row)

    while not redelivery_broker.dead_letters():
        with contextlib.suppress(KillsQuery):
            query.step(handler, evidence=True)
        if wait:
            redelivery_broker.send("orders", "more")
    query.drain(handler, evidence=True)
    assert Counter(body for body in query.bodies() if body != "more") == Counter(
        f"good-{n}" for n in range(100) if n != 42
    )
    (dead,) = redelivery_broker.dead_letters()
    assert (dead.body, dead.headers["redeliveryCount"]) == (b"killer-42", "3")
    assert {body for body, count in deliveries.items() if count > 1} == {"killer-42"}
    # A batch, its groups, three spared failures, three charged ones: two deaths each.
    assert query.starts <= 2 * (1 + 3 + 3 + 3) + 1


@pytest.mark.parametrize("published", range(4))
@pytest.mark.parametrize("waiting", [False, True])
def test_a_death_between_the_state_and_the_groups(
    redelivery_broker: MemoryBroker,
    make_query: Callable[..., Query],
    redelivery_clock: ManualClock,
    *,
    published: int,
    waiting: bool,
) -> None:
    """The next start publishes the missing groups only: each row passes once.

    Redelivered rows of that batch, which the state knows, are in the groups and no longer wait.
    """
    query = make_query(**SPLIT)
    if waiting:
        redelivery_broker.send("orders", "late")
        query.step(_late)
        query.step(_late)
        redelivery_clock.advance(1.5)
    fill(redelivery_broker, 3)
    query.start()
    query.read_ahead()
    while not query.plan():
        pass
    assert len([row for rows in query.read() for row in rows]) == 3 + waiting
    fail(query, 2)
    lane = query.start()._journal.lanes.redeliveries
    publish, left = lane.publish, [published]

    def dying(table: object) -> object:
        if not left[0]:
            raise Killed
        left[0] -= 1
        return publish(table)  # type: ignore[arg-type]

    lane.publish = dying  # type: ignore[method-assign,assignment]
    if published < 3 + waiting:
        with pytest.raises(Killed):
            query.step(_late)
    query.die()
    query.drain(_late)
    assert Counter(query.bodies()) == Counter([*(f"good-{n}" for n in range(3)), *["late"] * waiting])
    assert not redelivery_broker.dead_letters()


@pytest.mark.parametrize("end", ["live", "die"])
def test_a_row_keeps_its_count_over_a_batch_that_is_given_up(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], redelivery_clock: ManualClock, end: str
) -> None:
    """A row that was redelivered in a split batch is in one of the groups, and that delivery counts once."""
    query = make_query(**SPLIT)
    redelivery_broker.send("orders", "bad")
    query.step(fails_bad)
    query.step(fails_bad)
    redelivery_clock.advance(1.5)
    fill(redelivery_broker, 3)
    query.read_ahead()
    while not query.plan():
        pass
    assert sorted(row["delivery_count"] for rows in query.read() for row in rows) == [1, 1, 1, 2]
    fail(query, 2)
    assert query.step() == []
    if end == "die":
        query.die()
    query.drain(fails_bad)
    (dead,) = redelivery_broker.dead_letters()
    assert (dead.body, dead.headers["redeliveryCount"]) == (b"bad", "3")
    assert sorted(query.bodies()) == [f"good-{n}" for n in range(3)]


def test_a_verdict_on_a_batch_that_was_given_up_says_nothing_of_its_groups(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query]
) -> None:
    """A task that ends after its batch was split is ignored, before and after the empty replay is committed."""
    fill(redelivery_broker, 4)
    query = make_query(**SPLIT)
    assert query.plan()
    rows = [row for rows in query.read() for row in rows]
    fail(query, 2)
    for mark in ("early", "late"):
        refused = {rows[0]["_place"]: Refusal(1, "fail", "timeout")}
        name = verdict_name(0, mark, list(refused))
        query.records.judge(name, Verdict(list(refused), refused), durable=True)
        if mark == "early":
            assert query.step() == []
    query.drain()
    assert Counter(query.bodies()) == Counter(f"good-{n}" for n in range(4))
    assert all(row["delivery_count"] == 1 for rows in query.output.values() for row in rows)


def test_a_row_over_which_processes_died_comes_alone(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], redelivery_clock: ManualClock
) -> None:
    """A row over which processes died is charged, and is alone in its batches, also without isolate."""
    fill(redelivery_broker, 4)
    query = make_query()
    assert query.plan()
    rows = [row for rows in query.read() for row in rows]
    refused = {
        rows[1]["_place"]: Refusal(1, DIED, "the process died"),
        rows[2]["_place"]: Refusal(1, "fail", "no"),
    }
    query.records.judge(verdict_name(0, "m", list(refused)), Verdict(list(refused), refused), durable=True)
    query.commit()
    query.step()
    redelivery_clock.advance(2)
    redelivery_broker.send("orders", "fresh")
    query.drain()
    batches = [
        [(row["body"].decode(), row["delivery_count"]) for row in rows] for rows in query.output.values()
    ]
    assert [("good-1", 2)] in batches
    assert sorted(functools.reduce(operator.iadd, batches, [])) == [
        ("fresh", 1),
        ("good-1", 2),
        ("good-2", 2),
    ]


def test_suspects_take_turns_with_the_others(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query]
) -> None:
    """A message that kills the query does not block new messages."""
    query = make_query(
        uri="jms.redeliveryPolicy.redeliveryDelay=0&jms.redeliveryPolicy.initialRedeliveryDelay=0",
        isolate="split",
        isolateAfter=1,
    )
    redelivery_broker.send("orders", "killer")
    for number in range(10):
        try:
            query.step(fails_bad, evidence=True)
        except KillsQuery:
            redelivery_broker.send("orders", f"good-{number}")
    assert len(query.bodies()) >= 2

"""Replays: a batch that Spark has planned never changes its content."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
from tests.spark.conftest import FAST
from tests.spark.query import KillsQuery, Query, Row, fails_bad, with_options

from redelivery_spark.wal.records import Refusal, Verdict, verdict_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery.testing import ManualClock, MemoryBroker

SENT = [f"good-{number}" for number in range(9)]


def fill(broker: MemoryBroker) -> None:
    """Send nine messages."""
    for body in SENT:
        broker.send("orders", body)


def flat(tasks: list[list[Row]]) -> list[Row]:
    """Return the rows of all tasks."""
    return [row for rows in tasks for row in rows]


@pytest.mark.parametrize("times", [1, 2, 5])
def test_a_sink_that_fails_sees_the_same_batch_again(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], times: int
) -> None:
    """A failed batch is the same each time, also with marks: the rows, their counts and their places."""
    fill(redelivery_broker)
    query = make_query()
    seen: list[list[Row]] = []

    def fails(row: Row) -> None:
        raise KillsQuery("no space left")

    for _ in range(times):
        assert query.plan()
        seen.append(flat(query.read()))
        with pytest.raises(KillsQuery):
            query.step(fails, evidence=True)
        redelivery_broker.send("orders", "later")
    assert query.step() == seen[0]
    assert all(rows == seen[0] for rows in seen)
    assert [row["body"].decode() for row in seen[0]] == SENT
    query.drain()
    assert query.bodies() == [*SENT, *["later"] * times]
    assert all(row["delivery_count"] == 1 for rows in query.output.values() for row in rows)


@pytest.mark.parametrize("partitions", [1, 2, 7])
def test_a_restart_with_other_partitions_has_the_same_rows(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], partitions: int
) -> None:
    """A restart with other partitions, more messages or lower limits has the same rows, in other tasks."""
    fill(redelivery_broker)
    query = make_query(partitions=3)
    assert query.plan()
    before = flat(query.read())
    query.die()
    redelivery_broker.send("orders", "later")
    with_options(query, partitions=partitions, most_rows=1, most_bytes=1)
    tasks = query.read()
    assert flat(tasks) == before
    assert len(tasks) <= partitions
    assert len(tasks) > 1 or partitions == 1


def test_a_batch_of_redelivered_and_fresh_rows_is_the_same_after_a_restart(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], redelivery_clock: ManualClock
) -> None:
    """A batch of redelivered and new rows is the same after a restart; their counts are charged once."""
    redelivery_broker.send("orders", "bad")
    query = make_query()
    query.step(fails_bad)
    query.step(fails_bad)
    redelivery_clock.advance(1.5)
    redelivery_broker.send("orders", "good")
    while not query.plan():
        pass
    before = flat(query.read())
    for _ in range(3):
        query.die()
        assert flat(query.read()) == before
    query.drain(fails_bad)
    assert redelivery_broker.dead_letters()[0].headers["redeliveryCount"] == "3"
    assert query.bodies() == ["good"]


def test_a_death_that_nobody_saw_counts_nothing(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query]
) -> None:
    """A process that is killed repeatedly with isolate=split splits no batch, and charges no row."""
    fill(redelivery_broker)
    query = make_query(isolate="split", isolateAfter=2)
    for _ in range(12):
        with contextlib.suppress(KillsQuery):
            query.step(_dies)
    query.drain()
    assert query.output == {0: query.output[0]}
    assert [row["delivery_count"] for row in query.output[0]] == [1] * 9


def _dies(row: Row) -> None:
    raise KillsQuery(row["body"].decode())


@pytest.mark.parametrize("end", ["live", "die"])
def test_a_verdict_that_comes_late_is_not_carried_out(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], end: str
) -> None:
    """A late verdict of an abandoned task on a settled batch is ignored, before and after a restart."""
    redelivery_broker.send("orders", SENT[0])
    query = make_query()
    query.step()
    for body in SENT[1:]:
        redelivery_broker.send("orders", body)
    rows = query.step() or []
    query.step()
    if end == "die":
        query.die()
    refused = {rows[0]["_place"]: Refusal(1, "fail", "late")}
    query.records.judge(verdict_name(0, "late", list(refused)), Verdict(list(refused), refused), durable=True)
    redelivery_broker.send("orders", "later")
    query.drain()
    assert query.bodies() == [*SENT, "later"]
    assert not query.store.names("verdicts")


def test_verdicts_that_a_death_left_behind_are_carried_out_once(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query]
) -> None:
    """Verdicts that a death left behind are carried out once: the next start removes them unread."""
    redelivery_broker.send("orders", "flaky")
    query = make_query()
    query.step(fails_bad)

    def killed(_: object) -> None:
        raise KillsQuery("here")

    query.start()._journal.records.forget = killed  # type: ignore[method-assign,assignment]
    with pytest.raises(KillsQuery):
        query.step(fails_bad)
    query.die()
    query.drain(fails_bad)
    assert query.bodies() == ["flaky"]
    assert query.output[max(query.output)][0]["delivery_count"] == 3
    assert not query.store.names("verdicts")


def test_a_death_before_the_state_finds_the_segments_of_what_was_refused(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], segments_of: Callable[[int], None]
) -> None:
    """Segments of refused rows are removed after the state has the rows: the next start settles the batch once more."""
    segments_of(1)
    for body in ("flaky", *SENT):
        redelivery_broker.send("orders", body)
    query = make_query(uri=f"{FAST}&redelivery.credit=1")
    query.read_ahead()
    query.step(fails_bad)

    def killed(*_: object) -> None:
        raise KillsQuery("here")

    query.start()._journal._states.publish = killed  # type: ignore[method-assign, assignment]
    with pytest.raises(KillsQuery):
        query.step(fails_bad)
    query.die()
    query.drain(fails_bad)
    assert sorted(query.bodies()) == ["flaky", *SENT]

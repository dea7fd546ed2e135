"""Outages of a sink: no message is charged, also with isolate=split."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from tests.spark.conftest import FAST
from tests.spark.query import KillsQuery, Query, Row, dead_bodies, fails_bad

from redelivery_spark.stream.engine_driver import LoggedDelivery

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from redelivery.testing import ManualClock, MemoryBroker

SPLIT = {"isolate": "split", "isolateAfter": 1}


def down(row: Row) -> None:
    """Fail as a sink that is down."""
    del row
    raise KillsQuery("sink down")


def test_one_message_and_a_sink_that_is_down(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], caplog: pytest.LogCaptureFixture
) -> None:
    """A message over which a sink fails is tried again, uncharged, and the log names the sink."""
    query = make_query(**SPLIT)
    redelivery_broker.send("orders", "good")
    for _ in range(30):
        with contextlib.suppress(KillsQuery):
            query.step(down, evidence=True)
    assert "no other batch has succeeded since (sink down)" in caplog.text
    query.drain()
    assert query.bodies() == ["good"]
    assert query.output[max(query.output)][0]["delivery_count"] == 1


def test_many_messages_and_a_long_outage(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], redelivery_clock: ManualClock
) -> None:
    """No message is dead-lettered in a long outage."""
    query = make_query(**SPLIT)
    for number in range(6):
        redelivery_broker.send("orders", f"good-{number}")
    while redelivery_clock.monotonic() < 400:
        with contextlib.suppress(KillsQuery):
            query.step(down, evidence=True)
    query.drain()
    assert not redelivery_broker.dead_letters()
    assert sorted(query.bodies()) == [f"good-{number}" for number in range(6)]


def test_by_default_an_outage_changes_nothing(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], redelivery_clock: ManualClock
) -> None:
    """By default the batch stays unchanged for as long as the outage lasts."""
    query = make_query()
    for number in range(6):
        redelivery_broker.send("orders", f"good-{number}")
    while redelivery_clock.monotonic() < 400:
        with contextlib.suppress(KillsQuery):
            query.step(down, evidence=True)
        redelivery_clock.advance(5)
    query.drain()
    assert [len(rows) for rows in query.output.values()] == [6]


def test_a_killer_among_others(redelivery_broker: MemoryBroker, make_query: Callable[..., Query]) -> None:
    """A killer is charged as soon as a batch has succeeded between two of its failures."""
    query = make_query(**SPLIT)
    redelivery_broker.send("orders", "killer")
    failures = 0
    while not redelivery_broker.dead_letters():
        try:
            query.step(fails_bad, evidence=True)
        except KillsQuery:
            failures += 1
            redelivery_broker.send("orders", f"good-{failures}")
        assert failures < 12
    assert redelivery_broker.dead_letters()[0].headers["redeliveryCount"] == "3"


def test_nothing_but_killers(redelivery_broker: MemoryBroker, make_query: Callable[..., Query]) -> None:
    """Killers alone end as dead letters after redelivery.maximumDeferrals."""
    query = make_query(uri=FAST + "&redelivery.maximumDeferrals=4", **SPLIT)
    redelivery_broker.send("orders", "killer")
    query.drain(fails_bad, evidence=True)
    assert dead_bodies(redelivery_broker) == [b"killer"]
    assert query.starts < 20


def test_an_outage_before_a_failure_that_went_through(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query]
) -> None:
    """A batch that succeeded before a row was alone for the first time does not charge the row."""
    query = make_query(**SPLIT)
    redelivery_broker.send("orders", "one")
    counts: list[int] = []

    def handler(row: Row) -> None:
        if row["body"] == b"one":
            counts.append(row["delivery_count"])
            if len(counts) in (1, 2, 4):
                raise KillsQuery("down")
            if len(counts) == 3:
                raise ValueError("no")

    for number in range(60):
        if number % 7 == 3:
            redelivery_broker.send("orders", f"other-{number}")
        with contextlib.suppress(KillsQuery):
            query.step(handler, evidence=True)
        if query.bodies().count("one"):
            break
    assert counts[:3] == [1, 1, 1]
    assert counts[-1] == 2
    assert not redelivery_broker.dead_letters()


def test_dead_letters_without_a_broker_share_a_line(
    redelivery_broker: MemoryBroker,
    make_query: Callable[..., Query],
    redelivery_clock: ManualClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """While the broker takes no dead letter, the first line counts them; then one is tried at a time, a line each."""
    query = make_query(uri="jms.redeliveryPolicy.maximumRedeliveries=0")
    for number in range(100):
        redelivery_broker.send("orders", f"bad-{number}")
    redelivery_broker.refuse_sends(10**9)
    end = redelivery_clock.monotonic() + 60
    while redelivery_clock.monotonic() < end:
        query.step(fails_bad)
        redelivery_clock.advance(0.5)
    lines = [each.getMessage() for each in caplog.records if "was not confirmed" in each.getMessage()]
    assert 4 <= len(lines) < 20
    assert all(line.startswith("queue://orders: ") for line in lines)
    assert lines[0].endswith("it is sent again, as are those of 99 other messages")
    assert all(line.endswith("it is sent again") for line in lines[1:])
    redelivery_broker.refuse_sends(0)
    query.drain()
    assert len(dead_bodies(redelivery_broker)) == 100


def test_no_id_of_a_producer_forges_a_line(
    redelivery_broker: MemoryBroker,
    make_query: Callable[..., Query],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A message id with a line end is escaped in the log of a query."""
    monkeypatch.setattr(LoggedDelivery, "message_id", property(lambda _: "a\nb"))
    query = make_query(uri="jms.redeliveryPolicy.maximumRedeliveries=0")
    redelivery_broker.send("orders", "bad")
    redelivery_broker.refuse_sends(10**9)
    for _ in range(5):
        query.step(fails_bad)
    lines = [each.getMessage() for each in caplog.records if "was not confirmed" in each.getMessage()]
    assert lines
    assert all(line.startswith("queue://orders: a\\nb: ") for line in lines)

"""Messages whose producer uses ids again: each is handled by itself."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from typing import TYPE_CHECKING

import pytest
from tests.spark.conftest import AT_ONCE, no_marks
from tests.spark.query import Query, Row, dead_bodies, fails_bad

from redelivery_memory.messages import MemoryDelivery

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from redelivery.testing import ManualClock, MemoryBroker

pytestmark = pytest.mark.usefixtures("own_ids")
Make = "Callable[..., Query]"


def send(broker: MemoryBroker, *bodies: str) -> None:
    """Send messages that all have the id X."""
    for body in bodies:
        broker.send("orders", body, headers={"id": "X"})


def test_one_waits_and_one_is_fresh(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], redelivery_clock: ManualClock
) -> None:
    """Both fail in one batch, and both become dead letters."""
    send(redelivery_broker, "bad-1")
    query = make_query()
    query.step(fails_bad)
    query.step(fails_bad)
    redelivery_clock.advance(1.5)
    send(redelivery_broker, "bad-2")
    query.drain(fails_bad)
    assert dead_bodies(redelivery_broker) == [b"bad-1", b"bad-2"]


def test_the_one_that_waits_passes(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], redelivery_clock: ManualClock
) -> None:
    """The fresh one fails in the same batch, and becomes a dead letter by itself."""
    send(redelivery_broker, "late")
    query = make_query()

    def handler(row: Row) -> None:
        if row["body"] == b"late" and row["delivery_count"] == 1:
            raise ValueError
        fails_bad(row)

    query.step(handler)
    query.step(handler)
    redelivery_clock.advance(1.5)
    send(redelivery_broker, "bad-2")
    query.drain(handler)
    assert query.bodies() == ["late"]
    assert dead_bodies(redelivery_broker) == [b"bad-2"]


def test_two_in_one_batch(redelivery_broker: MemoryBroker, make_query: Callable[..., Query]) -> None:
    """The first keeps its id, and the second has one of its own; its dead letter tells the id that it was sent with."""
    send(redelivery_broker, "good-1", "bad-2")
    query = make_query()
    query.drain(fails_bad)
    assert query.bodies() == ["good-1"]
    assert query.output[1][0]["message_id"] == "X"
    (letter,) = redelivery_broker.dead_letters()
    assert (letter.body, letter.headers["redeliveryOriginalId"]) == (b"bad-2", "X")


def test_with_ack_commit_the_second_is_no_copy(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query]
) -> None:
    """It is handled, although one with its id has been accepted."""
    query = make_query(ack="commit")
    send(redelivery_broker, "good-1")
    query.step()
    query.step()
    send(redelivery_broker, "good-2")
    query.drain()
    assert query.bodies() == ["good-1", "good-2"]


def test_with_ack_commit_both_are_accepted(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query]
) -> None:
    """The broker has neither of two that were in one batch."""
    send(redelivery_broker, "good-1", "good-2")
    make_query(ack="commit").drain()
    assert redelivery_broker.depth("orders") == 0


def test_a_restart_takes_neither_for_the_other(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query]
) -> None:
    """One waits and another is in the batch on its way when the process dies."""
    query = make_query()
    send(redelivery_broker, "bad-1")
    query.step(fails_bad)
    send(redelivery_broker, "good-2")
    query.planned = query.start().latest(query.committed, 100)
    query.die()
    query.drain(fails_bad)
    assert query.bodies() == ["good-2"]
    assert dead_bodies(redelivery_broker) == [b"bad-1"]


@pytest.mark.parametrize("ack", ["wal", "commit"])
def test_a_copy_of_another_body_is_no_copy(
    redelivery_broker: MemoryBroker,
    make_query: Callable[..., Query],
    monkeypatch: pytest.MonkeyPatch,
    ack: str,
) -> None:
    """A message that comes marked, with the id of one that is in the log, is another one if its body is."""
    send(redelivery_broker, "good-1")
    query = make_query(ack=ack)
    query.step()
    query.step()
    query.die()
    monkeypatch.setattr(MemoryDelivery, "redelivered", property(lambda _: True))
    send(redelivery_broker, "good-2")
    query.drain()
    assert query.bodies() == ["good-1", "good-2"]


def test_a_dead_letter_that_is_put_back(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is handled again, with its id and its body, and marked as redelivered, after a restart too."""
    query = make_query(uri=AT_ONCE)
    send(redelivery_broker, "bad-1")
    query.drain(fails_bad)
    query.die()
    monkeypatch.setattr(MemoryDelivery, "redelivered", property(lambda _: True))
    send(redelivery_broker, "bad-1")
    query.drain()
    assert query.bodies() == ["bad-1"]


def test_a_message_that_is_marked_when_the_batches_before_are_gone(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Soon after a start, but some batches later: it is no copy of what the log has, and no batch fails of that."""
    query = make_query(maxMessagesPerTrigger=1)
    names = [f"good-{n}" for n in range(10)]
    for at, name in enumerate(names):
        redelivery_broker.send("orders", name, headers={"id": name})
        query.drain()
        if at == 3:
            query.die()
    monkeypatch.setattr(MemoryDelivery, "redelivered", property(lambda _: True))
    redelivery_broker.send("orders", "late", headers={"id": "late"})
    query.drain()
    assert query.bodies() == [*names, "late"]


@pytest.mark.parametrize("marks", [True, False])
def test_equal_messages_of_tasks_are_all_rows(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], *, marks: bool
) -> None:
    """A producer that says the same under one id all the time is heard each time, whoever consumes."""
    with nullcontext() if marks else no_marks():
        query = make_query(consumers="executors", maxMessagesPerTrigger=4)
        query.start()
        for _ in range(30):
            redelivery_broker.send("orders", "alive", headers={"id": "X"})
        query.drain()
        assert len(query.bodies()) == 30


def test_a_log_that_is_begun_anew(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], tmp_path: Path
) -> None:
    """What was in a log that was removed is in none."""
    names = [f"reading-{n}" for n in range(6)]

    def day(order: list[str]) -> list[str]:
        for each in order:
            redelivery_broker.send("orders", each, headers={"id": each})
        query = make_query(consumers="executors", maxMessagesPerTrigger=4)
        query.drain()
        query.die()
        assert redelivery_broker.depth("orders") == 0
        return sorted(query.bodies())

    assert day(names) == names
    shutil.rmtree(tmp_path / "wal")
    assert day(names[::-1]) == names

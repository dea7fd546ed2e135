"""Messages that the broker keeps until their rows are done with: poison, copies, and who else may have them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.conftest import AT_ONCE, FAST, HOURS
from tests.spark.query import Killed, Query, dead_bodies, fails_bad

import redelivery
import redelivery_memory.adapter
from redelivery import RedeliveryError
from redelivery_spark.stream.source_connection import SourceConnection

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.spark.query import Row

    from redelivery.testing import MemoryBroker


def test_poison_that_the_broker_has_not_confirmed(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query]
) -> None:
    """It is not safe: after a restart it becomes a dead letter."""
    query = make_query(ack="commit", uri=AT_ONCE)
    redelivery_broker.send("orders", "bad-1")
    query.step(fails_bad)
    redelivery_broker.refuse_settlements(10**6)
    query.step(fails_bad)
    query.step(fails_bad)
    query.die()
    redelivery_broker.refuse_settlements(0)
    query.drain(fails_bad)
    assert dead_bodies(redelivery_broker) == [b"bad-1"]
    assert redelivery_broker.depth("orders") == 0


def test_poison_whose_message_does_not_come_again(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query]
) -> None:
    """It was dead-lettered just before a death: after a while a copy is sent, and nothing waits any longer."""
    query = make_query(ack="commit", uri=AT_ONCE)
    redelivery_broker.send("orders", "bad-1")
    query.step(fails_bad)
    states = query.start()._journal._states
    publish = states.publish

    def dying(*arguments: object) -> None:
        publish(*arguments)  # type: ignore[arg-type]
        raise Killed

    states.publish = dying  # type: ignore[assignment,method-assign]
    with pytest.raises(Killed):
        query.step(fails_bad)
    query.die()
    assert dead_bodies(redelivery_broker) == [b"bad-1"]
    query.drain(fails_bad)
    assert dead_bodies(redelivery_broker) == [b"bad-1"] * 2


@pytest.mark.parametrize("acks", [("wal", "commit"), ("commit", "wal")])
def test_ack_is_switched_while_a_message_waits(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], acks: tuple[str, str]
) -> None:
    """It becomes a dead letter, once, and the broker has it no more."""
    query = make_query(ack=acks[0])
    redelivery_broker.send("orders", "bad-1")
    query.step(fails_bad)
    query.step(fails_bad)
    query.die()
    query.options = make_query(ack=acks[1]).options
    query.drain(fails_bad)
    assert dead_bodies(redelivery_broker) == [b"bad-1"]
    assert redelivery_broker.depth("orders") == 0


def test_a_body_that_did_not_arrive_whole(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query]
) -> None:
    """The broker keeps it with ack=wal too, and dead-letters it itself: no copy could be made of it."""
    query = make_query(uri=AT_ONCE)
    redelivery_broker.send("orders", b"bad-1", body_kind="partial")
    redelivery_broker.send("orders", b"good")
    query.step(fails_bad)
    assert redelivery_broker.depth("orders") == 1
    query.drain(fails_bad)
    assert query.bodies() == ["good"]
    assert dead_bodies(redelivery_broker) == [b"bad-1"]


def test_an_unwhole_body_whose_message_is_gone(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query]
) -> None:
    """Nothing can be done about it, and nothing waits for it."""
    query = make_query(uri=AT_ONCE)
    redelivery_broker.send("orders", b"bad-1", body_kind="partial")
    query.step(fails_bad)
    query.die()
    with redelivery.connect(redelivery_broker.uri) as connection, connection.consumer("orders") as consumer:
        message = consumer.receive(timeout=60)
        assert message is not None
        message.accept()
    query.drain(fails_bad)
    assert not redelivery_broker.dead_letters()


def test_poison_that_no_copy_can_be_made_of_ends_the_query(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is set aside here: the error names the cure, and the broker keeps the message."""
    able = replace(redelivery_memory.CAPABILITIES, poison_persistent=False, poison_non_persistent=False)
    monkeypatch.setattr(redelivery_memory.adapter, "CAPABILITIES", able)
    query = make_query(uri=AT_ONCE)
    redelivery_broker.send("orders", b"bad-1", body_kind="partial")
    with pytest.raises(RedeliveryError, match="consume this destination over AMQP"):
        query.drain(fails_bad)
    assert redelivery_broker.depth("orders") == 1


def test_what_a_query_cannot_set_aside_is_no_option(make_query: Callable[..., Query]) -> None:
    """It is refused, but for 0, which is what a query does."""
    with pytest.raises(RedeliveryError, match=r"redelivery\.maximumSetAside has no place here"):
        make_query(uri="redelivery.maximumSetAside=5").start()._journal.resume(0)
    make_query(uri="redelivery.maximumSetAside=0").start()


def test_a_broker_that_keeps_no_poison(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query]
) -> None:
    """deadLetter=ack with ack=wal is refused at the start: the broker will have let go of the messages."""
    del redelivery_broker
    with pytest.raises(RedeliveryError, match="deadLetter=ack"):
        make_query(uri="redelivery.deadLetter=ack").start()._journal.resume(0)


def test_waiting_messages_leave_room_for_others(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query]
) -> None:
    """With ack=commit they stay unacknowledged, and the others come all the same."""
    query = make_query(uri=HOURS, ack="commit", maxMessagesPerTrigger=2)
    for number in range(4):
        redelivery_broker.send("orders", f"bad-{number}")
    redelivery_broker.send("orders", "good")
    for _ in range(20):
        query.step(fails_bad)
    assert query.bodies() == ["good"]


def test_a_cut_connection(redelivery_broker: MemoryBroker, make_query: Callable[..., Query]) -> None:
    """With ack=commit, what waits over a cut is dead-lettered once, and the broker has it no more."""
    query = make_query(uri=FAST, ack="commit")
    redelivery_broker.send("orders", "bad-1")
    query.step(fails_bad)
    query.step(fails_bad)
    redelivery_broker.cut()
    query.drain(fails_bad)
    assert dead_bodies(redelivery_broker) == [b"bad-1"]
    assert redelivery_broker.depth("orders") == 0


@pytest.mark.parametrize("ack", ["wal", "commit"])
def test_copies_that_come_late(
    redelivery_broker: MemoryBroker,
    make_query: Callable[..., Query],
    monkeypatch: pytest.MonkeyPatch,
    ack: str,
) -> None:
    """A copy that comes when the batch of its row is removed, or its row is done with, is no second row."""
    query = make_query(maxMessagesPerTrigger=2, ack=ack)
    first, later = ["first-0", "first-1"], [f"later-{n}" for n in range(12)]
    for each in first:
        redelivery_broker.send("orders", each)

    def killed(*_: object) -> None:
        raise Killed

    if ack == "wal":
        with monkeypatch.context() as patch:
            patch.setattr(SourceConnection, "settle", killed)
            with pytest.raises(Killed):
                query.step()
    else:
        query.step(waits_once)
        query.step(waits_once)
    query.die()
    for each in later:
        redelivery_broker.send("orders", each)
    take, late = SourceConnection.take, list[Any]()

    def appended(self: SourceConnection, most: int, most_bytes: int, timeout: float) -> list[Any]:
        got = take(self, most + 2 - len(late), most_bytes, timeout)
        late.extend(each for each in got if each.redelivered)
        got = [each for each in got if not each.redelivered][:most]
        if not got:
            got, late[:] = late[:], []
        return list(got)

    monkeypatch.setattr(SourceConnection, "take", appended)
    query.drain(waits_once)
    assert Counter(query.bodies()) == Counter(first + later)
    assert redelivery_broker.depth("orders") == 0


def waits_once(row: Row) -> None:
    """Refuse the first delivery of the first messages."""
    if row["body"].startswith(b"first") and row["delivery_count"] < 2:
        raise ValueError


@pytest.mark.parametrize("batches", [1, 5])
def test_what_waits_is_known_over_the_next_connection(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], batches: int
) -> None:
    """However many batches there were since, a message that waits and comes again is not taken for a new one."""
    query = make_query(ack="commit", uri=HOURS)
    redelivery_broker.send("orders", "bad-1")
    query.step(fails_bad)
    for number in range(batches):
        redelivery_broker.send("orders", f"good-{number}")
        query.step(fails_bad)
    redelivery_broker.cut()
    for _ in range(3):
        assert query.step(fails_bad) is None
    told = query.start().report()
    assert told is not None
    assert (told["parked"], told["redelivered"]) == (1, 1)
    assert redelivery_broker.depth("orders") == 1

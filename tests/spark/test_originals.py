"""Messages that the broker keeps until their rows are done with: poison, copies, and who else may have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.spark.conftest import AT_ONCE, FAST, HOURS
from tests.spark.query import Killed, Query, dead_bodies, fails_bad

import redelivery
from redelivery import RedeliveryError

if TYPE_CHECKING:
    from collections.abc import Callable

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
        message = consumer.receive(timeout=1)
        assert message is not None
        message.accept()
    query.drain(fails_bad)
    assert not redelivery_broker.dead_letters()


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

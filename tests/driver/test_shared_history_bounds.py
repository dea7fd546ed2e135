"""Histories without a consumer: who gets them, how large they are, and which is dropped first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.core.model import Arrival, Letter

import redelivery
from redelivery.core.commands import Subscribe
from redelivery.core.delivery import Record
from redelivery.core.message_history import RECALL
from redelivery.driver.connection.shared_history import SharedHistory, scope_of

if TYPE_CHECKING:
    from redelivery.testing import ManualClock, MemoryBroker


class Namesake(Arrival):
    """Delivery with an id that its producer has set."""

    __slots__ = ()

    @property
    def strong(self) -> bool:
        return False


def subscription(destination: str, name: str | None = None) -> Subscribe:
    return Subscribe(1, destination, 10, subscription=name)


@pytest.mark.parametrize(
    ("subscribe", "scope"),
    [
        (subscription("queue://a"), "all"),
        (subscription("temp-queue://a"), "all"),
        (subscription("topic://a", "name"), "all"),
        (subscription("topic://a"), "none"),
        (subscription("temp-topic://a"), "none"),
        (subscription("native://a"), "later"),
        (subscription("native://a", "name"), "all"),
    ],
)
def test_who_may_get_the_very_message(subscribe: Subscribe, scope: str) -> None:
    """Only a consumer that can receive the same message, not a copy of it, continues its count."""
    assert scope_of(subscribe) == scope


def test_consumers_of_a_source_share_a_history() -> None:
    """Consumers of a source share a history, also later ones; a plain topic's consumer has its own."""
    histories = SharedHistory()
    queue, topic = subscription("queue://a"), subscription("topic://a")
    first = histories.opened(queue)
    assert histories.opened(queue) is first
    assert histories.opened(subscription("queue://b")) is not first
    assert histories.opened(topic) is not histories.opened(topic)
    first.remember(Arrival(Letter(1), 1, counts=False), Record(1))
    for _ in range(2):
        histories.closed(queue, first)
    assert histories.opened(queue) is first


def test_of_a_topic_nothing_is_left() -> None:
    """A topic leaves no history: another consumer has copies of its own."""
    histories, topic = SharedHistory(), subscription("topic://a")
    history = histories.opened(topic)
    history.remember(Arrival(Letter(1), 1, counts=False), Record(1))
    histories.closed(topic, history)
    assert len(histories.opened(topic)) == 0


def test_a_native_address_leaves_to_who_comes_later() -> None:
    """A native address leaves its history to later consumers, not to open ones."""
    histories, native = SharedHistory(), subscription("native://a")
    first, beside = histories.opened(native), histories.opened(native)
    first.remember(Arrival(Letter(1), 1, counts=False), Record(1))
    histories.closed(native, first)
    assert len(beside) == 0
    beside.remember(Arrival(Letter(2), 1, counts=False), Record(2))
    histories.closed(native, beside)
    later = histories.opened(native)
    assert [later.known(Arrival(Letter(n), 1, counts=False), 0.0) is not None for n in (1, 2)] == [True, True]


def test_what_is_left_is_bounded() -> None:
    """Past the limit the histories that were left first are dropped."""
    histories = SharedHistory()
    for number in range(RECALL + 5):
        subscribe = subscription(f"queue://{number}")
        history = histories.opened(subscribe)
        history.remember(Arrival(Letter(number), 1, counts=False), Record(1))
        histories.closed(subscribe, history)
    assert len(histories._left) == RECALL
    assert len(histories.opened(subscription("queue://4"))) == 0
    assert len(histories.opened(subscription("queue://5"))) > 0


def test_an_empty_history_is_not_kept() -> None:
    """An empty history is not kept."""
    histories, subscribe = SharedHistory(), subscription("queue://a")
    histories.closed(subscribe, histories.opened(subscribe))
    assert (histories._left, histories._open) == ({}, {})


def test_the_bodies_of_a_lost_connection_are_not_kept() -> None:
    """Bodies of a lost connection are not kept when its last consumer closes before the reconnect."""
    histories, queue = SharedHistory(), subscription("queue://a")
    first, second = histories.opened(queue), histories.opened(queue)
    held = [Namesake(Letter(number), 1, counts=False) for number in range(3)]
    first.remember(held[0], Record(1))
    first.connection_lost(1, [], held, [], 0.0, 1, 0.0)
    histories.closed(queue, first)
    assert all(each.key in first._held for each in held), "the other one may still have to learn of the loss"
    histories.closed(queue, second)
    assert len(first) == 1
    assert not any(each.key in first._held for each in held)


def test_verdicts_of_closed_consumers_come_back_with_the_loss_of_the_connection() -> None:
    """After a connection loss the verdicts of closed consumers are known to the next consumer."""
    histories, subscribe = SharedHistory(), subscription("queue://a")
    history, verdict = histories.opened(subscribe), Record()
    arrival = Arrival(Letter(1), 1, counts=False)
    history.poisoned(arrival, verdict, 5.0)
    histories.closed(subscribe, history)
    histories.connection_lost(1.0, 1, 0.0)
    assert histories.opened(subscribe).known(arrival, 0.0) is verdict


def test_the_word_for_ids_reaches_each_history() -> None:
    """`redelivery.uniqueIds` of the connection reaches each history."""
    history = SharedHistory(unique_ids=True).opened(subscription("queue://a"))
    assert history.unique_ids


def test_a_consumer_gives_its_share_back(
    redelivery_broker: MemoryBroker, redelivery_clock: ManualClock
) -> None:
    """A closed consumer with an empty history leaves no source."""
    with redelivery.connect(redelivery_broker.uri, clock=redelivery_clock) as connection:
        consumer = connection.consumer("orders")
        histories = connection._driver.shared_history
        assert list(histories._open) == [("queue://orders", None)]
        consumer.close()
        assert histories._open == {}


def test_a_verdict_outlives_a_loss_while_its_consumer_closes() -> None:
    """A verdict outlives a connection loss during its consumer's close."""
    histories, queue = SharedHistory(), subscription("queue://a")
    history = histories.opened(queue)
    history.poisoned(Arrival(Letter(1), 1, counts=False), Record(), 5.0)
    histories.connection_lost(1.0, 1, 0.0)
    histories.closed(queue, history)
    assert histories.opened(queue).known(Arrival(Letter(1), 2, counts=False), 0.0) is not None

"""Counts, due times and verdicts go with the message, from a consumer that gives it up to the one that gets it next."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.driver.twins import eventually

import redelivery_memory.adapter
from redelivery.core.delivery import Record
from redelivery.core.events import Arrived
from redelivery_memory.messages import MemoryDelivery

if TYPE_CHECKING:
    from tests.driver.twins import Twin

POLICY = "?jms.redeliveryPolicy.maximumRedeliveries=3"


@pytest.fixture(autouse=True)
def uncounted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the broker tell no count, as STOMP brokers do: what is known of a message, its consumers know."""
    able = replace(redelivery_memory.CAPABILITIES, counts=False)
    monkeypatch.setattr(redelivery_memory.adapter, "CAPABILITIES", able)
    monkeypatch.setattr(MemoryDelivery, "broker_count", None)


def known_of(connection: Any) -> int:
    """Return how many messages are remembered."""
    histories = connection._driver.shared_history
    kept = (*histories._left.values(), *histories._open.values())
    return sum(len(history._records) for history, _ in kept)


def test_a_poison_message_does_not_outlive_its_policy(twin: Twin) -> None:
    """A program that makes a consumer for each message runs a poison message as often as its policy allows."""
    connection = twin.connect(POLICY)
    twin.broker.send("orders", "bad")
    counts: list[int] = []
    while not twin.broker.dead_letters():
        consumer = twin.call(connection.consumer("orders"))
        message = twin.receive(consumer, 5)
        counts.append(message.redelivery_count)
        message.fail("bad")
        twin.call(consumer.close())
    assert counts == [0, 1, 2, 3]
    assert [(letter.cause, letter.count) for letter in twin.broker.dead_letters()] == [("bad", 4)]
    assert known_of(connection) == 0


def test_the_due_time_goes_with_the_count(twin: Twin) -> None:
    """The next consumer waits for the rest of the delay, and knows when the message failed first."""
    connection = twin.connect()
    first = twin.call(connection.consumer("orders"))
    twin.broker.send("orders", "a")
    failed = twin.clock.time()
    twin.receive(first).fail()
    twin.call(first.close())
    twin.advance(0.25)
    second = twin.call(connection.consumer("orders"))
    assert twin.receive(second, 0.749) is None
    again = twin.receive(second, 0.001)
    assert again.redelivery_count == 1
    assert again.first_seen.timestamp() == failed


def test_a_verdict_goes_on(twin: Twin) -> None:
    """What was poison, and could not be dead-lettered before its consumer closed, is not handled again."""
    connection = twin.connect("?redelivery.deadLetter=forward")
    first = twin.call(connection.consumer("orders"))
    twin.broker.fail_forward(1)
    twin.broker.send("orders", "a")
    twin.receive(first).poison("bad")
    twin.call(first.close())
    assert twin.broker.dead_letters() == []
    second = twin.call(connection.consumer("orders"))
    assert twin.receive(second) is None
    assert [letter.cause for letter in twin.broker.dead_letters()] == ["bad"]


def test_a_failure_after_the_close_is_charged(twin: Twin) -> None:
    """A message that fails when its consumer is gone already has failed all the same."""
    connection = twin.connect()
    first = twin.call(connection.consumer("orders"))
    twin.broker.send("orders", "a")
    message = twin.receive(first)
    twin.call(first.close())
    assert message.fail() is False
    second = twin.call(connection.consumer("orders"))
    assert twin.receive(second, 1).redelivery_count == 1


def test_a_message_whose_handler_hangs_is_not_waited_for(twin: Twin) -> None:
    """A closed consumer's message goes to the next one at once, and what is said of it later changes nothing there."""
    connection = twin.connect(POLICY)
    first = twin.call(connection.consumer("orders"))
    twin.broker.send("orders", "a")
    twin.receive(first).fail()
    message = twin.receive(first, 1)
    twin.call(first.close())
    second = twin.call(connection.consumer("orders"))
    again = twin.receive(second)
    assert again.redelivery_count == 1
    assert message.poison() is False
    again.fail()
    assert twin.receive(second, 1).redelivery_count == 2


def test_a_consumer_that_is_open_already_gets_the_count(twin: Twin) -> None:
    """The count goes to whoever receives the message, not to whoever is made next."""
    connection = twin.connect()
    first, other = (twin.call(connection.consumer("orders", credit=1)) for _ in range(2))
    twin.broker.send("orders", "a")
    twin.broker.send("orders", "b")
    message = twin.receive(first)
    assert message.text == "a"
    message.fail()
    twin.receive(other).accept()
    twin.call(first.close())
    third = twin.call(connection.consumer("orders"))
    again = twin.receive(other, 1)
    assert (again.text, again.redelivery_count) == ("a", 1)
    assert (other.parked, third.parked) == (0, 0)
    assert known_of(connection) == 0


def test_what_is_released_keeps_its_count(twin: Twin) -> None:
    """A release does not wash off a charge, whoever gets the message next."""
    connection = twin.connect()
    consumers = [twin.call(connection.consumer("orders")) for _ in range(2)]
    twin.broker.send("orders", "a")
    twin.receive(consumers[0]).fail()
    twin.receive(consumers[0], 1).release()
    seen: set[tuple[int, int]] = set()
    for _ in range(2):
        for number, consumer in enumerate(consumers):
            message = twin.receive(consumer)
            if message is not None:
                seen.add((number, message.redelivery_count))
                message.release()
    assert seen == {(0, 1), (1, 1)}


@pytest.mark.parametrize("ended", [True, False])
def test_after_a_loss_the_count_goes_with_the_message(twin: Twin, ended: bool) -> None:
    """A message that another consumer of its queue gets after a reconnect goes on where it was."""
    connection = twin.connect()
    other, first = (twin.call(connection.consumer("orders", credit=1)) for _ in range(2))
    twin.broker.send("orders", "b")
    twin.broker.send("orders", "a")
    message = twin.receive(first)
    assert message.text == "a"
    message.fail()
    running = None if ended else twin.receive(first, 1)
    twin.receive(other).accept()
    twin.broker.cut()
    if running is not None:
        assert twin.receive(other, 5) is None, "its handler runs on, and is waited for"
        assert running.fail() is False
    again = twin.receive(other, 2)
    assert (again.text, again.redelivery_count) == ("a", 1 if ended else 2)


def test_nothing_goes_to_another_destination(twin: Twin) -> None:
    """What is left of one queue is not seen by consumers of others, and waits for its own."""
    connection = twin.connect()
    first = twin.call(connection.consumer("orders"))
    twin.broker.send("orders", "a")
    twin.receive(first).fail()
    twin.call(first.close())
    other = twin.call(connection.consumer("others"))
    twin.broker.send("others", "a")
    assert twin.receive(other).redelivery_count == 0
    assert known_of(connection) == 1


def test_topics(twin: Twin) -> None:
    """A durable subscription goes on with its counts; a plain subscriber's copies are its own business."""
    connection = twin.connect("?jms.clientID=me")

    def subscribed(name: str | None) -> Any:
        return twin.call(connection.consumer("topic://news", subscription=name))

    mine, plain, neighbour = subscribed("mine"), subscribed(None), subscribed(None)
    twin.broker.send("topic://news", "a")
    for consumer in (mine, plain):
        twin.receive(consumer).fail()
        twin.call(consumer.close())
    assert list(connection._driver.shared_history._left) == [("topic://news", "mine")]
    yours = subscribed("yours")
    twin.broker.send("topic://news", "b")
    assert [twin.receive(neighbour).redelivery_count for _ in "ab"] == [0, 0]
    assert twin.receive(yours).redelivery_count == 0
    mine = subscribed("mine")
    counts = {m.text: m.redelivery_count for m in (twin.receive(mine, 1), twin.receive(mine, 1))}
    assert counts == {"a": 1, "b": 0}


@pytest.mark.parametrize("later", [True, False])
def test_a_native_address_leaves_its_counts_to_later_consumers(twin: Twin, later: bool) -> None:
    """It may be a topic, where a consumer that is open already has a copy of its own."""
    connection = twin.connect()
    first = twin.call(connection.consumer("native://orders"))
    twin.broker.send("native://orders", "a")
    twin.receive(first).fail()
    if not later:
        other = twin.call(connection.consumer("native://orders"))
    twin.call(first.close())
    if later:
        other = twin.call(connection.consumer("native://orders"))
    assert twin.receive(other, 1).redelivery_count == later


def test_a_native_consumer_keeps_its_counts_over_a_loss(twin: Twin) -> None:
    """As long as it is open nobody else goes on with them, and nothing is left to those that are made later."""
    connection = twin.connect()
    consumer = twin.call(connection.consumer("native://orders"))
    twin.broker.send("native://orders", "a")
    twin.receive(consumer).fail()
    twin.broker.cut()
    assert twin.receive(consumer, 1).redelivery_count == 1
    assert known_of(connection) == 0


def test_what_a_lost_connection_still_brings_takes_nothing(twin: Twin) -> None:
    """A message of an earlier connection is not looked at, so its record stays for the copy that will come."""
    connection = twin.connect()
    consumer = twin.call(connection.consumer("orders"))
    twin.broker.send("orders", "a")
    message = twin.receive(consumer)
    twin.broker.cut()
    twin.advance(1)
    late, record = message._delivery, Record(2)
    history = consumer._dispatcher.engine._history
    assert message.accept() is False
    history.remember(late, record)
    consumer._dispatcher.feed(Arrived(late.consumer, [late]))
    assert history.known(late, 0.0) is record


def test_a_copy_waits_for_the_handler_of_another_consumer(
    twin: Twin, caplog: pytest.LogCaptureFixture
) -> None:
    """If that succeeds it is accepted without being handled, counted, and one line of the log."""
    caplog.set_level("INFO", "redelivery")
    connection = twin.connect()
    other, first = (twin.call(connection.consumer("orders", credit=1)) for _ in range(2))
    twin.broker.send("orders", "b")
    twin.broker.send("orders", "a")
    message = twin.receive(first)
    twin.receive(other).accept()
    twin.broker.cut()
    assert twin.receive(other, 3) is None
    assert message.accept() is False
    assert twin.receive(other, 3) is None
    assert connection.report().deduplicated == 1
    assert twin.broker.messages("orders") == []
    lines = [r.getMessage() for r in caplog.records if "without being handled" in r.getMessage()]
    assert len(lines) == 1
    assert lines[0].startswith("queue://orders: ID:")
    assert lines[0].endswith("its handler has succeeded, with a delivery that was lost or taken back")


def test_what_one_consumer_has_accepted_another_one_does_not_handle_again(twin: Twin) -> None:
    """The accepts are lost on the wire, the broker marks the copies, and half of them come to the other consumer."""
    connection = twin.connect()
    handled: Counter[str] = Counter()
    for _ in range(2):
        twin.listen(connection, "orders", lambda message: handled.update([message.text]))
    twin.broker.drop_accepts(20)
    for number in range(20):
        twin.broker.send("orders", str(number))
    eventually(twin, lambda: connection.report().accepted == 20)
    twin.broker.cut()
    eventually(twin, lambda: connection.report().deduplicated == 20 or handled.total() > 20)
    assert set(handled.values()) == {1}
    eventually(twin, lambda: twin.broker.messages("orders") == [])

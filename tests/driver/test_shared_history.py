"""Counts, due times and verdicts go with a message from the consumer that gives it up to the next one."""

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
    """Make the broker send no delivery count, as over STOMP: only the history of its consumers has counts."""
    able = replace(redelivery_memory.CAPABILITIES, counts=False)
    monkeypatch.setattr(redelivery_memory.adapter, "CAPABILITIES", able)
    monkeypatch.setattr(MemoryDelivery, "broker_count", None)


def known_of(connection: Any) -> int:
    """Return the number of remembered messages."""
    histories = connection._driver.shared_history
    kept = (*histories._left.values(), *histories._open.values())
    return sum(len(history._records) for history, _ in kept)


def test_a_poison_message_does_not_outlive_its_policy(twin: Twin) -> None:
    """A poison message is handled as often as its policy allows, though each delivery has a new consumer."""
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
    """The next consumer waits for the rest of the delay, and knows when the message first failed."""
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
    """A poison message that was not dead-lettered before its consumer closed is not handled again."""
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
    """A failure after its consumer's close is charged."""
    connection = twin.connect()
    first = twin.call(connection.consumer("orders"))
    twin.broker.send("orders", "a")
    message = twin.receive(first)
    twin.call(first.close())
    assert message.fail() is False
    second = twin.call(connection.consumer("orders"))
    assert twin.receive(second, 1).redelivery_count == 1


def test_a_message_whose_handler_hangs_is_not_waited_for(twin: Twin) -> None:
    """A closed consumer's message goes to the next one while its handler hangs; the late result changes nothing."""
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
    """The count goes to the consumer that receives the message, also if it was made earlier."""
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
    """A released message keeps its count, whichever consumer gets it next."""
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
    """A message that another consumer of its queue gets after a reconnect keeps its count."""
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
    """The history of one queue is not used for other queues, and stays for its own."""
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
    """A durable subscription keeps its counts; copies of plain subscribers do not share them."""
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
    """A native address leaves its counts to later consumers only: an open one may have copies of a topic."""
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
    """A native address' consumer keeps its counts over a reconnect, and shares them with no other."""
    connection = twin.connect()
    consumer = twin.call(connection.consumer("native://orders"))
    twin.broker.send("native://orders", "a")
    twin.receive(consumer).fail()
    twin.broker.cut()
    assert twin.receive(consumer, 1).redelivery_count == 1
    assert known_of(connection) == 0


def test_what_a_lost_connection_still_brings_takes_nothing(twin: Twin) -> None:
    """A late message of a lost connection is ignored, and its record stays for the redelivery."""
    connection = twin.connect()
    consumer = twin.call(connection.consumer("orders"))
    twin.broker.send("orders", "a")
    message = twin.receive(consumer)
    twin.broker.cut()
    twin.advance(1)
    late, record = message._delivery, Record(2)
    history = consumer._dispatcher.engine.state.history
    assert message.accept() is False
    history.remember(late, record)
    consumer._dispatcher.feed(Arrived(late.consumer, [late]))
    assert history.known(late, 0.0) is record


def test_a_copy_waits_for_the_handler_of_another_consumer(
    twin: Twin, caplog: pytest.LogCaptureFixture
) -> None:
    """A message waits for the handler of another consumer; after its success it is accepted unseen, with a log line."""
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
    """A message that one consumer accepted is not handled by another, if the acknowledgements are lost."""
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

"""Individual dead-letter queues, discarding, and dropping by policy, on threads and on a loop."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

import redelivery
from redelivery import ConfigurationError

if TYPE_CHECKING:
    from tests.driver.twins import Twin

ONCE = "jms.redeliveryPolicy.maximumRedeliveries=0"
INDIVIDUAL = "redelivery.deadLetterStrategy=individual"
DISCARDING = "redelivery.deadLetterStrategy=discarding"


def fail(message: redelivery.Message) -> None:
    raise ValueError(message.text)


def where(twin: Twin, *queues: str) -> dict[str, list[str | None]]:
    """Return the bodies on these queues."""
    return {queue: [letter.text for letter in twin.broker.messages(queue)] for queue in queues}


def test_individual_dead_letter_queues(twin: Twin) -> None:
    """Each queue and topic has its own dead-letter queue, behind a wildcard too, with cause and origin."""
    connection = twin.connect(f"?{INDIVIDUAL}&{ONCE}&redelivery.topicPrefix=DEAD.&redelivery.topicSuffix=.t")
    for destination in ("orders", "topic://prices", "many.*"):
        twin.listen(connection, destination, fail)
    for destination in ("orders", "topic://prices", "many.a", "many.b"):
        twin.broker.send(destination, destination)
    twin.advance(1)
    assert where(twin, "DLQ.orders", "DEAD.prices.t", "DLQ.many.a", "DLQ.many.b", "DLQ") == {
        "DLQ.orders": ["orders"], "DEAD.prices.t": ["topic://prices"],
        "DLQ.many.a": ["many.a"], "DLQ.many.b": ["many.b"], "DLQ": [],
    }  # fmt: skip
    (letter,) = twin.broker.messages("DEAD.prices.t")
    assert (letter.cause, letter.original_destination) == ("ValueError: topic://prices", "topic://prices")
    assert twin.call(connection.drain()) == redelivery.Report(poisoned=4)


def test_one_for_each_durable_subscription(twin: Twin) -> None:
    """With `destinationPerDurableSubscriber` the name has client id and subscription; else they share a queue."""
    each = f"{INDIVIDUAL}&redelivery.destinationPerDurableSubscriber=true&jms.clientID=me&{ONCE}"
    connection = twin.connect(f"?{each}")
    for name in ("one", "two"):
        twin.listen(connection, "topic://prices", fail, subscription=name)
    twin.listen(connection, "topic://prices", fail)
    twin.broker.send("topic://prices", "up")
    twin.advance(1)
    assert where(twin, "DLQ.prices.me:one", "DLQ.prices.me:two", "DLQ.prices") == {
        "DLQ.prices.me:one": ["up"], "DLQ.prices.me:two": ["up"], "DLQ.prices": ["up"],
    }  # fmt: skip


def test_expired_messages_have_an_individual_queue_too(twin: Twin) -> None:
    """An expired message is copied to its individual queue with cause `expired`, unless `processExpired=false`."""
    for process, expected in (("true", ["old"]), ("false", [])):
        connection = twin.connect(f"?{INDIVIDUAL}&redelivery.processExpired={process}&redelivery.credit=2")
        consumer = twin.call(connection.consumer(f"orders.{process}"))
        twin.broker.send(f"orders.{process}", "first")
        first = twin.receive(consumer)
        twin.broker.send(f"orders.{process}", "old", expires_at=twin.clock.time() + 1)
        twin.advance(5)
        first.accept()
        assert twin.call(consumer.receive(timeout=0)) is None
        assert where(twin, f"DLQ.orders.{process}")[f"DLQ.orders.{process}"] == expected
        report = connection.report()
        assert (report.poisoned, report.discarded) == ((1, 0) if expected else (0, 1))
        twin.leave(connection)


def test_discarding_by_pattern(twin: Twin, caplog: pytest.LogCaptureFixture) -> None:
    """Messages of matching destinations are dropped, and counted in the log; others go to the shared DLQ."""
    caplog.set_level(logging.INFO, "redelivery")
    options = f"{DISCARDING}&redelivery.discard=LOG%5C..*%20prices&redelivery.reportInterval=2&{ONCE}"
    connection = twin.connect(f"?{options}")
    for destination in ("LOG.a", "LOG.b", "prices", "orders"):
        twin.listen(connection, destination, fail)
        twin.broker.send(destination, destination)
    twin.broker.send("LOG.a", "again")
    twin.advance(1)
    assert where(twin, "DLQ", "LOG.a", "LOG.b", "prices") == {
        "DLQ": ["orders"],
        "LOG.a": [],
        "LOG.b": [],
        "prices": [],
    }
    reported = [record.message for record in caplog.records if "reportInterval" in record.message]
    assert [int(line.split()[0]) for line in reported] == [2, 4], "over all consumers of the connection"
    assert any(
        "failed (ValueError: LOG.b); accepted and dropped" in record.message for record in caplog.records
    )
    assert twin.call(connection.drain()) == redelivery.Report(poisoned=1, discarded=4)


def test_what_used_up_its_redeliveries_is_dropped(twin: Twin) -> None:
    """With `sendToDlqIfMaxRetriesExceeded=false` used-up messages are dropped; `Poison` still dead-letters."""
    connection = twin.connect(f"?redelivery.sendToDlqIfMaxRetriesExceeded=false&{ONCE}")

    def handle(message: redelivery.Message) -> None:
        raise redelivery.Poison("bad") if message.text == "poison" else ValueError("no")

    twin.listen(connection, "orders", handle)
    for body in ("poison", "fail"):
        twin.broker.send("orders", body)
    twin.advance(1)
    assert where(twin, "DLQ", "orders") == {"DLQ": ["poison"], "orders": []}
    assert twin.call(connection.drain()) == redelivery.Report(poisoned=1, discarded=1)


def test_what_no_entry_serves_is_dropped(twin: Twin) -> None:
    """With `fallbackToDeadLetter=false` a message without an entry is dropped after the default redeliveries."""
    options = "jms.redeliveryPolicyMap.orders.maximumRedeliveries=1&redelivery.fallbackToDeadLetter=false"
    connection = twin.connect(f"?{options}")
    seen: list[str] = []

    def handle(message: redelivery.Message) -> None:
        seen.append(message.destination)
        raise ValueError("no")

    for queue in ("orders", "others"):
        twin.listen(connection, queue, handle)
        twin.broker.send(queue, queue)
    twin.advance(60)
    assert (seen.count("queue://orders"), seen.count("queue://others")) == (2, 7)
    assert where(twin, "DLQ", "others") == {"DLQ": ["orders"], "others": []}


def test_an_expiring_dead_letter(twin: Twin) -> None:
    """With `deadLetterExpiration` every dead letter is a copy: the broker's own acknowledgement has no expiry."""
    connection = twin.connect(f"?redelivery.deadLetterExpiration=60000&{ONCE}")
    twin.listen(connection, "orders", fail)
    twin.broker.send("orders", "body")
    twin.advance(1)
    (letter,) = twin.broker.dead_letters()
    assert letter.expires_at == pytest.approx(twin.clock.time() + 59, abs=1)


@pytest.mark.parametrize(
    ("options", "destination", "message"),
    [
        (INDIVIDUAL, ">", "includes its own dead-letter destinations, queue://DLQ.x among them"),
        (INDIVIDUAL, "DLQ.>", "includes its own dead-letter destinations"),
        (f"{INDIVIDUAL}&redelivery.queuePrefix=D-", "*.orders", "queue://D-x.orders among them"),
        (f"{INDIVIDUAL}&redelivery.useQueueForTopicMessages=false", "topic://>", "topic://DLQ.x among them"),
        (INDIVIDUAL, "native://orders", "neither a queue nor a topic"),
        (f"{DISCARDING}&redelivery.discard=A", "DLQ", "is the dead-letter destination"),
        ("redelivery.deadLetter=auto", ">", "includes queue://DLQ, which is the dead-letter destination"),
        ("redelivery.deadLetterDestination=dead.letters", "dead.*", "includes queue://dead.letters"),
    ],
)  # fmt: skip
def test_a_consumer_of_its_own_dead_letters_is_refused(
    twin: Twin, options: str, destination: str, message: str
) -> None:
    """A consumer whose dead letters come back to it is refused, also through a wildcard."""
    connection = twin.connect(f"?{options}")
    with pytest.raises(ConfigurationError, match=message):
        twin.call(connection.consumer(destination))


@pytest.mark.parametrize(
    ("options", "destination"),
    [
        (INDIVIDUAL, "DLQ.orders"), (INDIVIDUAL, "orders.>"), (INDIVIDUAL, "*"), (INDIVIDUAL, "topic://>"),
        (DISCARDING, "DLQ"), ("redelivery.deadLetter=discard", ">"), ("redelivery.deadLetter=auto", "topic://>"),
    ],
)  # fmt: skip
def test_a_consumer_of_others_is_not(twin: Twin, options: str, destination: str) -> None:
    """A consumer of other consumers' dead letters is made, if it cannot receive its own."""
    twin.call(twin.connect(f"?{options}").consumer(destination))

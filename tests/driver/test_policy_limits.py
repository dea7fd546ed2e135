"""Time limits, lists of delays in the URI, and `Message.last_delivery`."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tests.driver.twins import eventually

from redelivery import Classifier, RedeliveryPolicy, RedeliveryPolicyMap, Report, SqliteLedger

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from tests.driver.twins import Twin

    from redelivery import Message

LIMIT = "?redelivery.policy.maximumElapsed=10000&jms.redeliveryPolicy.maximumRedeliveries=-1&jms.redeliveryPolicy."


def fails(seen: list[tuple[int, bool]], message: Message) -> None:
    seen.append((message.delivery_count, message.last_delivery))
    raise ValueError("no stock")


def test_a_message_that_fails_for_too_long_is_dead_lettered(
    twin: Twin, caplog: pytest.LogCaptureFixture
) -> None:
    """The last delivery before the time limit is known to its handler; log and dead letter name the limit."""
    twin.broker.send("orders", "x")
    seen: list[tuple[int, bool]] = []
    connection = twin.connect(f"{LIMIT}redeliveryDelay=4000")
    with caplog.at_level(logging.WARNING):
        twin.listen(connection, "orders", lambda message: fails(seen, message))
        for _ in range(3):
            twin.advance(4)
        eventually(twin, twin.broker.dead_letters)
    assert seen == [(1, False), (2, False), (3, False), (4, True)]
    (letter,) = twin.broker.dead_letters()
    assert (letter.count, letter.cause) == (4, "ValueError: no stock (after 10 s)")
    assert "delivery 4 failed (ValueError: no stock (after 10 s)); poison" in caplog.text
    assert connection.report() == Report(redelivered=3, poisoned=1)


def test_a_list_of_delays_in_the_uri(twin: Twin) -> None:
    """A message waits for each delay of a list in turn, then it is poison."""
    twin.broker.send("orders", "x")
    seen: list[tuple[int, bool]] = []
    connection = twin.connect("?redelivery.policyMap.orders.delays=1000,5000")
    twin.listen(connection, "orders", lambda message: fails(seen, message))
    for waited, count in ((0.9, 1), (0.2, 2), (4.7, 2), (0.3, 3)):
        twin.advance(waited)
        assert len(seen) == count
    assert seen == [(1, False), (2, False), (3, True)]
    eventually(twin, twin.broker.dead_letters)


def test_a_pulled_message_and_one_of_a_session_know_it_too(twin: Twin) -> None:
    """A pulled message, and one of a session, knows its last delivery by the policy of its destination."""
    connection = twin.connect("?jms.redeliveryPolicyMap.once.>.maximumRedeliveries=0")
    session = twin.call(connection.session("transacted"))
    for source in (connection, session):
        for queue, last in ((f"once.{id(source)}", True), (f"often.{id(source)}", False)):
            twin.broker.send(queue, "x")
            message = twin.receive(twin.call(source.consumer(queue)))
            assert message is not None
            assert message.last_delivery is last
    twin.call(session.rollback())


def test_without_a_limit_no_delivery_is_the_last(twin: Twin) -> None:
    """Without a limit no delivery is the last; a classifier's policy does not count, as no exception is known yet."""
    never = RedeliveryPolicy(maximum_redeliveries=-1)
    errors = Classifier().retry(ValueError, policy=RedeliveryPolicy(maximum_redeliveries=0))
    twin.broker.send("orders", "x")
    seen: list[tuple[int, bool]] = []
    connection = twin.connect(policies=RedeliveryPolicyMap(default=never), errors=errors)
    twin.listen(connection, "orders", lambda message: fails(seen, message))
    eventually(twin, twin.broker.dead_letters)
    assert seen == [(1, False)]


def test_the_time_goes_on_in_the_next_process(twin: Twin, tmp_path: Path) -> None:
    """With a ledger the next process knows when the message first failed."""
    policies = RedeliveryPolicyMap(default=RedeliveryPolicy(maximum_redeliveries=-1, maximum_elapsed=600))
    ledger = SqliteLedger(tmp_path / "ledger.db")
    twin.broker.send("orders", "x")
    for waits, last in ((0, False), (300, False), (300.5, True)):
        twin.advance(waits)
        connection = twin.connect(ledger=ledger, policies=policies)
        message = twin.receive(twin.call(connection.consumer("orders")), 10)
        assert message is not None
        assert message.last_delivery is last
        message.fail("no stock")
        twin.leave(connection)
    assert [letter.cause for letter in twin.broker.dead_letters()] == ["no stock (after 600 s)"]
    assert [one.cause for one in ledger.buried()] == ["no stock (after 600 s)"]

"""Lost connections: kept counts, stale results, redelivered messages."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

import pytest
from tests.driver.twins import body_of

import redelivery
from redelivery import AdapterError, TransportError

if TYPE_CHECKING:
    from tests.driver.twins import Twin

    from redelivery.testing import ManualClock, MemoryBroker


def test_counts_and_due_times_outlive_a_connection(twin: Twin) -> None:
    """A parked message keeps its count and its due time when it is redelivered on the next connection."""
    connection = twin.connect()
    consumer = twin.call(connection.consumer("orders"))
    twin.broker.send("orders", "a")
    twin.receive(consumer).fail()
    twin.advance(0.25)
    twin.broker.cut()
    assert twin.receive(consumer, 0.749) is None
    again = twin.receive(consumer, 0.001)
    assert (again.redelivery_count, again.redelivered) == (1, True)
    assert twin.broker.connections == 1


def test_a_lost_connection_charges_nothing(twin: Twin) -> None:
    """A message that no handler failed on is charged nothing, however often the connection is lost."""
    connection = twin.connect("?jms.redeliveryPolicy.maximumRedeliveries=2")
    consumer = twin.call(connection.consumer("orders"))
    twin.broker.send("orders", "a")
    for _ in range(5):
        message = twin.receive(consumer, 1)
        twin.broker.cut()
        assert message.release() is False
    message = twin.receive(consumer, 1)
    assert (message.redelivery_count, message.broker_count) == (0, 5)
    message.fail()
    assert twin.receive(consumer, 1).redelivery_count == 1


@pytest.mark.parametrize("result", ["accept", "fail", "poison", "release"])
def test_a_late_result_is_stale(twin: Twin, result: str) -> None:
    """A late result returns False, is counted as stale, and is not written to the new connection."""
    connection = twin.connect()
    consumer = twin.call(connection.consumer("orders"))
    identity = twin.broker.send("orders", "a")
    message = twin.receive(consumer)
    twin.broker.cut()
    assert getattr(message, result)() is False
    assert message.outcome == "stale"
    assert connection.report().stale == 1
    actions = [step.action for step in twin.broker.history(identity)]
    assert not {"accepted", "poisoned", "released"} & set(actions[:3])


def test_late_results_are_told_once(twin: Twin, caplog: pytest.LogCaptureFixture) -> None:
    """The first late result of a consumer is logged, with its meaning."""
    connection = twin.connect()
    consumer = twin.call(connection.consumer("orders"))
    twin.broker.send("orders", "a")
    twin.broker.send("orders", "b")
    held = [twin.receive(consumer), twin.receive(consumer)]
    with caplog.at_level(logging.WARNING, "redelivery"):
        twin.broker.cut()
        for message in held:
            message.accept()
    assert sum("a result is stale" in record.message for record in caplog.records) == 1


def test_a_copy_waits_for_the_old_handler_and_its_success(twin: Twin) -> None:
    """A redelivered message whose handler still runs waits for it; after its success it is accepted unseen."""
    connection = twin.connect()
    consumer = twin.call(connection.consumer("orders"))
    twin.broker.send("orders", "a")
    message = twin.receive(consumer)
    twin.broker.cut()
    assert twin.receive(consumer, 5) is None
    assert message.accept() is False
    assert twin.receive(consumer, 5) is None
    assert twin.broker.depth("orders") == 0
    assert connection.report() == redelivery.Report(stale=1, deduplicated=1)


def test_a_copy_waits_for_the_old_handler_and_its_failure(twin: Twin) -> None:
    """A failure of the old handler is charged once, and the redelivered message follows the policy."""
    connection = twin.connect()
    consumer = twin.call(connection.consumer("orders"))
    twin.broker.send("orders", "a")
    message = twin.receive(consumer)
    twin.broker.cut()
    assert twin.receive(consumer, 5) is None
    assert message.fail("no") is False
    assert twin.receive(consumer, 0.999) is None
    assert twin.receive(consumer, 0.001).redelivery_count == 1


def test_lost_accepts_are_not_handled_again(twin: Twin) -> None:
    """A message whose acknowledgement was lost is accepted again without being handled."""
    connection = twin.connect()
    consumer = twin.call(connection.consumer("orders"))
    twin.broker.drop_accepts(2)
    for body in ("a", "b", "c"):
        twin.broker.send("orders", body)
        twin.receive(consumer).accept()
    twin.broker.cut()
    assert twin.receive(consumer, 5) is None
    assert twin.broker.depth("orders") == 0
    assert connection.report() == redelivery.Report(accepted=3, deduplicated=2)


def test_subscriptions_are_restored(twin: Twin) -> None:
    """Every open consumer is subscribed again with its credit; a closed one is not."""
    connection = twin.connect("?redelivery.credit=2")
    kept = twin.call(connection.consumer("orders"))
    closed = twin.call(connection.consumer("others"))
    twin.call(closed.close())
    twin.broker.cut()
    twin.advance(1)
    twin.broker.send("others", "x")
    for body in ("a", "b", "c"):
        twin.broker.send("orders", body)
    assert [body_of(twin.receive(kept)) for _ in range(3)] == ["a", "b", None]
    assert not twin.broker.messages("others")[0].delivered


def test_a_consumer_made_while_the_link_is_down(twin: Twin) -> None:
    """A consumer that is made while the connection is down starts after the reconnect."""
    connection = twin.connect()
    twin.broker.refuse_connections()
    twin.broker.cut()
    twin.clock.call_later(5, twin.broker.accept_connections)
    twin.broker.send("orders", "a")
    consumer = twin.call(connection.consumer("orders"), over=6)
    assert body_of(twin.receive(consumer)) == "a"
    assert twin.clock.monotonic() >= 1005


def test_a_consumer_nobody_can_make(twin: Twin) -> None:
    """A consumer that is not confirmed within 30 s is refused, and leaves nothing."""
    connection = twin.connect()
    twin.broker.refuse_connections()
    twin.broker.cut()
    with pytest.raises(TransportError, match="within 30 s"):
        twin.call(connection.consumer("orders"), over=30)
    twin.broker.accept_connections()
    twin.advance(60)
    twin.broker.send("orders", "a")
    assert not twin.broker.messages("orders")[0].delivered


def test_a_refused_consumer_leaves_no_trace(twin: Twin) -> None:
    """A consumer that the broker refuses is an AdapterError, and is not subscribed again later."""
    connection = twin.connect()
    for _ in range(2):
        with pytest.raises(AdapterError, match="no selectors"):
            twin.call(connection.consumer("orders", selector="a = 1"))
    twin.broker.cut()
    twin.advance(1)
    consumer = twin.call(connection.consumer("orders"))
    twin.broker.send("orders", "a")
    assert body_of(twin.receive(consumer)) == "a"


def test_the_engines_learn_of_a_loss_before_the_next_connection(
    redelivery_broker: MemoryBroker, redelivery_clock: ManualClock
) -> None:
    """The driver's thread reconnects only after all engines have heard of the loss."""
    connected = threading.Event()

    class Slow(logging.Handler):
        """Engine that is slow to handle the loss."""

        def emit(self, record: logging.LogRecord) -> None:
            if record.msg.startswith("connection lost"):
                connection._driver.expect_alarm()
                connected.wait(0.05)
            elif record.msg.startswith("connected to"):
                connected.set()

    logger, slow = logging.getLogger("redelivery"), Slow()
    with redelivery.connect(redelivery_broker.uri, clock=redelivery_clock) as connection:
        consumer = connection.consumer("orders")
        redelivery_broker.send("orders", "a")
        message = consumer.receive(0)
        assert message is not None
        message.fail()
        logger.addHandler(slow)
        level = logger.level
        logger.setLevel(logging.INFO)
        try:
            redelivery_broker.cut()
            redelivery_clock.advance(0.5)
        finally:
            logger.removeHandler(slow)
            logger.setLevel(level)
        again = consumer.receive(1)
        assert again is not None
        assert again.accept() is True
        assert consumer.receive(5) is None
        assert connection.report() == redelivery.Report(accepted=1, redelivered=1)

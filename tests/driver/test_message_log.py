"""Log lines about messages: `destination: id: what happened; what happens next`."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.driver.twins import body_of, eventually

import redelivery
import redelivery_memory.adapter
from redelivery.driver.event_log import named
from redelivery.events import MessageEvent
from redelivery_memory.adapter import CAPABILITIES

if TYPE_CHECKING:
    from tests.driver.twins import Twin

ONE = "?jms.redeliveryPolicy.maximumRedeliveries=1&jms.redeliveryPolicy.initialRedeliveryDelay=2500"


def fail(_: object) -> None:
    """Fail as a handler."""
    raise ValueError("no stock")


def lines(log: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Return the lines about messages, with their levels."""
    said = [(record.levelname, record.getMessage()) for record in log.records]
    return [(level, text) for level, text in said if text.startswith(("queue://", "topic://"))]


def test_a_failed_attempt_is_one_line(twin: Twin, caplog: pytest.LogCaptureFixture) -> None:
    """A failed delivery is one line with the error, its number, the maximum, and the next step, without a traceback."""
    caplog.set_level(logging.INFO, "redelivery")
    connection = twin.connect(ONE)
    twin.listen(connection, "orders", fail)
    name = twin.broker.send("orders", "a")
    twin.advance(3)
    assert lines(caplog) == [
        (
            "WARNING",
            f"queue://orders: {name}: delivery 1 of 2 failed (ValueError: no stock); redelivery in 2.5 s",
        ),
        (
            "WARNING",
            (
                f"queue://orders: {name}: delivery 2 of 2 failed (ValueError: no stock); "
                "poison, the broker dead-letters it"
            ),
        ),
    ]
    assert [record for record in caplog.records if record.exc_info] == []


def test_a_failure_that_is_not_charged_promises_no_time(twin: Twin, caplog: pytest.LogCaptureFixture) -> None:
    """A line about an uncharged failure has the earliest time: an open breaker may delay the message further."""
    caplog.set_level(logging.INFO, "redelivery")
    connection = twin.connect(ONE, errors=redelivery.Classifier().trip(ValueError))
    twin.listen(connection, "orders", fail)
    name = twin.broker.send("orders", "a")
    eventually(twin, lambda: connection.report().spared)
    assert lines(caplog)[0] == (
        "INFO",
        (
            f"queue://orders: {name}: failed, not charged (ValueError: no stock); redelivery in 2.5 s or "
            "later, when the breaker allows it"
        ),
    )


def test_a_log_without_info_says_that_a_loss_is_over(twin: Twin, caplog: pytest.LogCaptureFixture) -> None:
    """The first connection at the first attempt is INFO; a reconnect is WARNING, as the loss before it."""
    caplog.set_level(logging.INFO, "redelivery")
    connection = twin.connect()
    twin.broker.cut()
    twin.advance(1)
    eventually(twin, lambda: connection.connected)
    made = [(each.levelname, each.getMessage().partition(" ")[0]) for each in caplog.records]
    assert [level for level, word in made if word == "connected"] == ["INFO", "WARNING"]


def test_tracebacks_are_for_debugging(twin: Twin, caplog: pytest.LogCaptureFixture) -> None:
    """At DEBUG each failed delivery has its traceback, right before its line."""
    caplog.set_level(logging.DEBUG, "redelivery")
    connection = twin.connect(ONE)
    consumer = twin.call(connection.consumer("orders"))
    name = twin.broker.send("orders", "a")
    twin.inside(twin.receive(consumer), fail)
    [record] = [record for record in caplog.records if record.exc_info]
    assert (record.levelname, record.getMessage()) == (
        "DEBUG",
        f"queue://orders: {name}: traceback of delivery 1",
    )
    assert "in fail" in caplog.text


def test_lines_name_the_messages_own_destination(twin: Twin, caplog: pytest.LogCaptureFixture) -> None:
    """A consumer of a pattern logs the destination to which each message was sent, also in its copy's line."""
    options = "?jms.redeliveryPolicy.maximumRedeliveries=0&redelivery.deadLetterDestination=broken"
    connection = twin.connect(options)
    consumer = twin.call(connection.consumer("topic://prices.*"))
    name = twin.broker.send("topic://prices.eur", "a")
    twin.inside(twin.receive(consumer), fail)
    assert lines(caplog) == [
        (
            "WARNING",
            (
                f"topic://prices.eur: {name}: delivery 1 of 1 failed (ValueError: no stock); "
                "poison, a copy goes to queue://broken"
            ),
        )
    ]


@pytest.mark.parametrize(
    ("able", "place"),
    [
        (
            {"own_poison": "last", "dead_letter_destination": "queue://ActiveMQ.DLQ"},
            "queue://ActiveMQ.DLQ, by default",
        ),
        ({"own_dead_letters": "the queue's dead-letter exchange x"}, "the queue's dead-letter exchange x"),
    ],
)
def test_where_the_broker_puts_a_dead_letter(
    twin: Twin,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    able: dict[str, Any],
    place: str,
) -> None:
    """The line of a message that the broker dead-letters itself names the place, which the tools may not know."""
    monkeypatch.setattr(redelivery_memory.adapter, "CAPABILITIES", replace(CAPABILITIES, **able))
    connection = twin.connect("?redelivery.deadLetter=ack&jms.redeliveryPolicy.maximumRedeliveries=0")
    consumer = twin.call(connection.consumer("orders"))
    twin.broker.send("orders", "a")
    twin.inside(twin.receive(consumer), fail)
    # It expires here, before it is handled.
    twin.broker.send("orders", "b", expires_at=twin.clock.time() + 1)
    twin.advance(2)
    assert twin.receive(consumer) is None
    found = [text for _, text in lines(caplog)]
    assert len(found) == 2
    assert all(text.endswith(f"; poison, the broker dead-letters it (to {place})") for text in found)


def test_what_a_handler_asks_for(twin: Twin, caplog: pytest.LogCaptureFixture) -> None:
    """Poison is a WARNING; Discard and Defer are INFO, because the application wants them."""
    caplog.set_level(logging.INFO, "redelivery")
    connection = twin.connect()
    consumer = twin.call(connection.consumer("orders"))
    for error in (redelivery.Poison("bad"), redelivery.Discard("old"), redelivery.Defer(0.5, "busy")):

        def steer(_: object, error: Exception = error) -> None:
            raise error

        twin.broker.send("orders", "a")
        twin.inside(twin.receive(consumer), steer)
    assert [(level, text.partition(": ")[2].partition(": ")[2]) for level, text in lines(caplog)] == [
        ("WARNING", "delivery 1 poisoned (bad); poison, the broker dead-letters it"),
        ("INFO", "discarded (old); accepted and dropped"),
        ("INFO", "deferred (busy); redelivery in 0.5 s"),
    ]


def test_a_failure_on_a_lost_connection(twin: Twin, caplog: pytest.LogCaptureFixture) -> None:
    """A failure on a lost connection is logged with its next step: the broker redelivers the message."""
    connection = twin.connect()
    consumer = twin.call(connection.consumer("orders"))
    name = twin.broker.send("orders", "a")
    message = twin.receive(consumer)
    twin.broker.refuse_connections()
    twin.broker.cut()
    twin.inside(message, fail)
    assert (
        "WARNING",
        (
            f"queue://orders: {name}: delivery 1 of 7 failed (ValueError: no stock); "
            "its connection was lost, and the broker redelivers it"
        ),
    ) in lines(caplog)


def test_an_exception_after_the_settlement(twin: Twin, caplog: pytest.LogCaptureFixture) -> None:
    """An exception after the settlement is logged, and changes nothing."""
    connection = twin.connect()
    consumer = twin.call(connection.consumer("orders"))
    name = twin.broker.send("orders", "a")

    def late(message: redelivery.Message) -> None:
        message.accept()
        fail(message)

    twin.inside(twin.receive(consumer), late)
    assert lines(caplog) == [
        (
            "WARNING",
            (
                f"queue://orders: {name}: handler raised after it settled the message (ValueError: no stock); "
                "the message stays accepted"
            ),
        )
    ]


def test_the_id_of_send_is_the_id_of_the_log(twin: Twin, caplog: pytest.LogCaptureFixture) -> None:
    """The log has the id that `send` returned."""
    connection = twin.connect()
    consumer = twin.call(connection.consumer("orders"))
    name = twin.call(connection.send("orders", "a"))
    message = twin.receive(consumer)
    assert body_of(message) == "a"
    twin.inside(message, fail)
    assert lines(caplog)[0][1].startswith(f"queue://orders: {name}: ")


@pytest.mark.parametrize(
    ("own", "sent", "shown"),
    [
        ("ID:1", "uuid", "ID:1 (sent as uuid)"),
        ("a", "a", "a"),
        (None, "uuid", "uuid"),
        ("ID:1", None, "ID:1"),
        (None, None, "no id"),
        ("a\nb\x1b[31m", "u\r\nuid", r"a\nb\x1b[31m (sent as u\r\nuid)"),
    ],
)
def test_both_ids_are_named_where_they_differ(own: str | None, sent: str | None, shown: str) -> None:
    """A line has both ids if the broker has given the message another one; no id of a producer forges a line."""
    headers = {} if sent is None else {"redeliveryId": sent}
    delivery: Any = SimpleNamespace(destination="queue://a", message_id=own, headers=headers)
    subscribe: Any = SimpleNamespace(destination="queue://a", consumer=1)
    assert named(MessageEvent(0.0, subscribe, delivery)) == f"queue://a: {shown}"


def test_a_deferral_is_no_failure(twin: Twin, caplog: pytest.LogCaptureFixture) -> None:
    """A deferred message is logged as deferred, also after a failure, and after a reconnect."""

    def defer(_: object) -> None:
        raise redelivery.Defer(5)

    connection = twin.connect()
    consumer = twin.call(connection.consumer("orders"))
    name = twin.broker.send("orders", "a")
    twin.receive(consumer).fail("no stock")
    message = twin.receive(consumer, 1)
    caplog.clear()
    caplog.set_level(logging.INFO, "redelivery")
    twin.inside(message, defer)
    twin.advance(1)
    twin.broker.cut()
    twin.advance(1)
    told = [record.getMessage() for record in caplog.records if name in record.getMessage()]
    assert told == [
        f"queue://orders: {name}: deferred (deferred by the handler); redelivery in 5 s",
        f"queue://orders: {name}: deferred before; redelivery in 4 s",
    ]


class _Raises(logging.Handler):
    """Log handler that raises."""

    def emit(self, record: logging.LogRecord) -> None:
        raise RuntimeError(record.getMessage())


def test_a_log_handler_that_raises_stops_nothing(twin: Twin) -> None:
    """Failures, dead letters, unseen accepts and losses are processed though the log handler raises."""
    handler = _Raises()
    logger = logging.getLogger("redelivery")
    connection = twin.connect("?jms.redeliveryPolicy.maximumRedeliveries=1")
    consumer = twin.call(connection.consumer("orders"))
    for text in ("good", "bad"):
        twin.broker.send("orders", text)
    good, bad = twin.receive(consumer), twin.receive(consumer)
    logger.addHandler(handler)
    try:
        bad.fail("no")
        twin.broker.drop_accepts(1)
        good.accept()
        twin.broker.drop_accepts(0)
        with suppress(RuntimeError):  # raised by the log handler on this test's own thread, at the loss
            twin.broker.cut()
        eventually(twin, lambda: connection.report().deduplicated == 1)
        twin.advance(2)
        twin.receive(consumer).fail("no")
        twin.advance(1)
    finally:
        logger.removeHandler(handler)
    assert [letter.text for letter in twin.broker.dead_letters()] == ["bad"]
    assert twin.broker.depth("orders") == 0

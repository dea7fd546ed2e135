"""Capabilities of one queue that a broker sends with the confirmation, and messages that it takes back later."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.cautions import cautions

import redelivery
import redelivery_memory.adapter
import redelivery_memory.server
from redelivery import ConfigurationError, events
from redelivery.adapter import Subscribed
from redelivery.core.events import TakenBack
from redelivery_memory.adapter import CAPABILITIES

if TYPE_CHECKING:
    from tests.driver.twins import Twin

CAUTION = "by its arguments the broker drops a message after 20 lost connections"


def found(monkeypatch: pytest.MonkeyPatch, **fields: object) -> None:
    """Make the broker send these capabilities for each queue."""
    able = replace(CAPABILITIES, **fields)  # type: ignore[arg-type]
    monkeypatch.setattr(redelivery_memory.server, "Subscribed", partial(Subscribed, capabilities=able))


def test_how_a_queue_may_lose_a_message_is_a_warning(
    twin: Twin, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A queue that may lose messages is warned of once for each consumer, and is an event for observers."""
    found(monkeypatch, caution=CAUTION)
    shown: list[events.Event] = []
    connection = twin.connect(observers=[shown.append])
    with caplog.at_level(logging.WARNING, logger="redelivery"):
        twin.call(connection.consumer("orders"))
        twin.broker.cut()
        twin.advance(1.0)
        twin.call(connection.consumer("bills"))
    lines = [each.getMessage() for each in caplog.records if CAUTION in each.getMessage()]
    assert lines == [f"queue://orders: {CAUTION}", f"queue://bills: {CAUTION}"]
    assert cautions(shown) == [CAUTION, CAUTION]


@pytest.mark.parametrize("broker_decides", [False, True])
def test_what_an_option_may_lose_is_said_of_topics_that_are_not_copied(
    twin: Twin, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, broker_decides: bool
) -> None:
    """Where the broker drops what no dead-letter address takes, it does so with a topic's messages, too."""
    able = replace(CAPABILITIES, ack_caution=CAUTION, poison_on_request=broker_decides)
    monkeypatch.setattr(redelivery_memory.adapter, "CAPABILITIES", able)
    twin.call(twin.connect("?redelivery.deadLetter=ack").consumer("topic://news"))
    lines = [each.getMessage() for each in caplog.records if CAUTION in each.getMessage()]
    assert lines == [f"topic://news: {CAUTION}"] * broker_decides


def test_a_place_of_the_brokers_own_that_closes_a_circle_ends_its_consumer(
    twin: Twin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer whose dead letters the broker's settings put before one that sends them back is refused."""
    able = replace(CAPABILITIES, tells_dead_letters=True, poison_persistent=False)
    monkeypatch.setattr(redelivery_memory.adapter, "CAPABILITIES", able)
    found(
        monkeypatch,
        tells_dead_letters=True,
        dead_letter_destination="queue://DLA",
        own_dead_letters="the setting",
    )
    connection = twin.connect()
    twin.call(connection.consumer("DLA", dead_letter="orders"))
    with pytest.raises(ConfigurationError, match=r"those of queue://orders to queue://DLA \(the setting\)"):
        twin.call(connection.consumer("orders"))
    twin.call(connection.consumer("orders", dead_letter="elsewhere"))


def test_what_an_option_may_lose_is_a_warning(
    twin: Twin, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With `deadLetter=ack` a consumer of a queue warns once of what the broker's acknowledgement may lose."""
    able = replace(CAPABILITIES, own_poison="asked", ack_caution=CAUTION)
    monkeypatch.setattr(redelivery_memory.adapter, "CAPABILITIES", able)
    for options, lines in (("?redelivery.deadLetter=ack", [f"queue://orders: {CAUTION}"]), ("", [])):
        caplog.clear()
        connection = twin.connect(options)
        twin.call(connection.consumer("topic://news"))
        twin.call(connection.consumer("orders"))
        twin.broker.cut()
        twin.advance(1.0)
        assert [
            text for text in map(logging.LogRecord.getMessage, caplog.records) if CAUTION in text
        ] == lines


def test_what_the_broker_could_do_for_a_queue_is_said_once(
    twin: Twin, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An unused feature of a queue is logged once at INFO, and is an event."""
    found(monkeypatch, advice="hold back what waits: redelivery.scheduler=broker")
    shown: list[events.Event] = []
    connection = twin.connect(observers=[shown.append])
    with caplog.at_level(logging.INFO, logger="redelivery"):
        twin.call(connection.consumer("orders"))
        twin.broker.cut()
        twin.advance(1.0)
    said = [
        (each.levelname, each.getMessage()) for each in caplog.records if "hold back" in each.getMessage()
    ]
    assert said == [("INFO", "queue://orders: hold back what waits: redelivery.scheduler=broker")]
    assert [each.text for each in shown if isinstance(each, events.QueueAdvice)] == [
        "hold back what waits: redelivery.scheduler=broker"
    ]


def test_what_a_queue_can_do_counts_more_than_what_its_broker_can(
    twin: Twin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a poison acknowledgement that keeps messages of its queue, the client sends a copy."""
    found(monkeypatch, poison_persistent=False, poison_non_persistent=False)
    twin.broker.send("orders", "bad")
    connection = twin.connect("?redelivery.deadLetterDestination=graves")
    message = twin.receive(twin.call(connection.consumer("orders")))
    assert message is not None
    message.poison("no")
    twin.advance(1.0)
    assert twin.broker.depth("graves") == 1


def test_what_the_broker_takes_back_is_stale_and_told_once(
    twin: Twin, caplog: pytest.LogCaptureFixture
) -> None:
    """A message that the broker has taken back is stale; its event and log line are emitted once."""
    twin.broker.send("orders", "slow")
    shown: list[events.Event] = []
    connection = twin.connect(observers=[shown.append])
    consumer = twin.call(connection.consumer("orders"))
    message = twin.receive(consumer)
    assert message is not None
    with caplog.at_level(logging.WARNING, logger="redelivery"):
        consumer._dispatcher.feed(TakenBack(message._delivery.consumer, [message._delivery]))
        assert message.accept() is False
    assert message.outcome == "stale"
    (told,) = [each for each in shown if isinstance(each, events.TakenBack)]
    assert (told.messages, told.running, told.limit) == (1, 1, None)
    lines = [each.getMessage() for each in caplog.records]
    assert "the broker has taken back 1 message after its consumer timeout" in lines[0]
    assert isinstance(connection.report(), redelivery.Report)


def test_what_is_taken_back_one_by_one_is_two_lines(twin: Twin, caplog: pytest.LogCaptureFixture) -> None:
    """Messages taken back one by one are one line at once, and one for all others after ten seconds or at the end."""
    for number in range(5):
        twin.broker.send("orders", f"{number}")
    connection = twin.connect()
    consumer = twin.call(connection.consumer("orders"))
    messages = [twin.receive(consumer) for _ in range(5)]
    with caplog.at_level(logging.WARNING, logger="redelivery"):
        for message in messages:
            assert message is not None
            consumer._dispatcher.feed(TakenBack(message._delivery.consumer, [message._delivery]))
        twin.call(connection.close())
    lines = [text for each in caplog.records if "taken" in (text := each.getMessage())]
    assert len(lines) == 2
    assert "the broker has taken back 1 message" in lines[0]
    assert "4 more in" in lines[1]
    assert lines[1].endswith("taken back by the broker after its consumer timeout, redelivered")

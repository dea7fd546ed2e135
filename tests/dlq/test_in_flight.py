"""Unconfirmed copies of dead letters, and the acceptances between them."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any, cast

import pytest

import redelivery
import redelivery_memory
from redelivery.core.commands import Accept, Forward
from redelivery.core.events import Confirmed
from redelivery.dlq.dlq_connection import DeadLetterConsumer
from redelivery.driver.consumer.dispatcher import Dispatcher
from redelivery.testing import MemoryBroker


def test_in_flight(broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch, bury: Any) -> None:
    """At most so many copies are unconfirmed, one by default; with transactions the option is refused."""
    held: list[Any] = []
    unconfirmed: list[int] = []
    send, feed, wait_below = DeadLetterConsumer.send_on, Dispatcher.feed, DeadLetterConsumer.wait_below

    def counted(taker: DeadLetterConsumer, deliveries: Any, *, together: bool) -> Any:
        assert not together
        unconfirmed.append(taker.unconfirmed + len(deliveries))
        return send(taker, deliveries, together=together)

    def slow(dispatcher: Dispatcher, event: Any) -> None:
        held.append(event) if isinstance(event, Confirmed) else feed(dispatcher, event)

    def waited(taker: DeadLetterConsumer, pending: int) -> None:
        while held and taker.unconfirmed >= pending:
            feed(cast("Dispatcher", taker.port), held.pop(0))
        wait_below(taker, pending)

    with redelivery.dead_letters(broker.uri) as tools:
        with pytest.raises(redelivery.ConfigurationError, match="in_flight has no effect on memory"):
            tools.redrive(in_flight=2)
        with pytest.raises(redelivery.ConfigurationError, match="in_flight must be 1 or more, not 0"):
            tools.redrive(in_flight=0)
    able = replace(redelivery_memory.CAPABILITIES, forward="confirmed")
    monkeypatch.setattr(redelivery_memory.adapter, "CAPABILITIES", able)
    monkeypatch.setattr(DeadLetterConsumer, "send_on", counted)
    monkeypatch.setattr(Dispatcher, "feed", slow)
    monkeypatch.setattr(DeadLetterConsumer, "wait_below", waited)
    for given, most in ((None, 1), (4, 4)):
        for _ in range(30):
            bury(origin="queue://orders")
        unconfirmed.clear()
        with redelivery.dead_letters(broker.uri) as tools:
            assert tools.redrive(in_flight=given).redriven == 30
        assert max(unconfirmed) == most


def test_acceptances_are_written_before_the_next_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Acceptances are written before the next copy, also those of a slow thread: a kill leaves at most one twice."""
    able = replace(redelivery_memory.CAPABILITIES, forward="confirmed", batch=True)
    monkeypatch.setattr(redelivery_memory.adapter, "CAPABILITIES", able)
    in_hand, sent, before = threading.Event(), threading.Event(), []
    main, execute = threading.current_thread(), redelivery_memory.MemoryAdapter.execute
    wait_below = DeadLetterConsumer.wait_below

    def slow(adapter: Any, commands: Any) -> None:
        if any(isinstance(command, Forward) for command in commands):
            sent.set()
        elif any(isinstance(each, Accept) for each in commands):
            sent.clear()
            in_hand.set()
            # The thread that sends copies writes these itself, while it receives dead letters, before the next copy.
            before.append(threading.current_thread() is main or not sent.wait(0.1))
        execute(adapter, commands)

    def waited(taker: DeadLetterConsumer, pending: int) -> None:
        wait_below(taker, pending)
        if sent.is_set():
            assert in_hand.wait(60)
        in_hand.clear()

    monkeypatch.setattr(redelivery_memory.MemoryAdapter, "execute", slow)
    monkeypatch.setattr(DeadLetterConsumer, "wait_below", waited)
    with MemoryBroker("in-real-time") as broker:
        for _ in range(3):
            broker.send("DLQ", "x", headers={"redeliveryOriginalDestination": "queue://orders"})
        with redelivery.dead_letters(broker.uri, idle=0.1) as tools:
            assert tools.redrive().redriven == 3
    assert before[:2] == [True, True], "the last one has no copy behind it"

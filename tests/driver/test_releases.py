"""Releases on a broker that takes nothing back before the consumer closes, as ActiveMQ over STOMP."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.idle_time import IDLE, idle_once

import redelivery_memory.adapter
from redelivery.driver.connection.connection_end import IdleWatch

if TYPE_CHECKING:
    from tests.driver.twins import Twin

    from redelivery import Message


@pytest.fixture(autouse=True)
def nothing_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the capability of releases from the broker."""
    able = replace(redelivery_memory.CAPABILITIES, release=False, counts=False)
    monkeypatch.setattr(redelivery_memory.adapter, "CAPABILITIES", able)


def test_a_consumer_that_releases_goes_on(twin: Twin) -> None:
    """A consumer may release more messages than it may park: the first ones are dispatched again."""
    connection = twin.connect("?redelivery.credit=4&redelivery.maxParked=4")
    consumer = twin.call(connection.consumer("orders"))
    for number in range(10):
        twin.broker.send("orders", str(number))
    for _ in range(30):
        # The broker sends no more than eight at once; then one is dispatched again each second.
        message = twin.receive(consumer, 2)
        assert message is not None
        assert (message.release(), message.redelivery_count) == (True, 0)
        assert consumer.parked <= 4
    accepted: set[str] = set()
    while (message := twin.receive(consumer, 2)) is not None:
        message.accept()
        accepted.add(message.text)
    assert len(accepted) + consumer.parked == 10
    twin.call(consumer.close())
    assert len(twin.broker.messages("orders")) == 10 - len(accepted)


def test_what_comes_again_of_itself_keeps_no_run_from_its_end(twin: Twin) -> None:
    """A slow handler that releases messages does not keep `run` from being idle: only new messages are work."""
    connection = twin.connect("?redelivery.credit=9&redelivery.maxParked=2")
    for number in range(3):
        twin.broker.send("orders", str(number))
    idle: list[tuple[str, bool]] = []

    def handle(message: Message) -> None:
        watch = IdleWatch(list(connection._driver.dispatchers.values()), 1e-9, lambda: True)
        watch.over()
        idle.append((message.text, watch.over()))
        message.release()

    twin.listen(connection, "orders", handle)
    twin.advance(1)
    twin.advance(1)
    assert idle == [("0", False), ("1", False), ("2", False), ("0", True), ("1", True)]
    twin.broker.send("orders", "3")
    twin.advance(1)
    assert ("3", False) in idle


def test_a_handler_that_releases_everything_ends_with_the_queue(
    twin: Twin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each message is handled once by a handler that releases all of them, then the run is idle."""
    connection = twin.connect("?redelivery.credit=20&redelivery.maxParked=3")
    for number in range(5):
        twin.broker.send("orders", str(number))
    handled: list[str] = []

    def handle(message: Message) -> None:
        handled.append(message.text)
        message.release()

    twin.listen(connection, "orders", handle)
    idle_once(monkeypatch, lambda: len(handled) == 5)
    twin.run(connection, until_idle=5 * IDLE)
    assert handled == ["0", "1", "2", "3", "4"]

"""Ctrl-C in the main thread while it closes a connection or a consumer: the broker takes the messages back at once."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.eventually import eventually
from tests.interrupts import default_handler

import redelivery
from redelivery.driver.connection.connection_driver import ConnectionDriver
from redelivery.driver.consumer.dispatcher import Dispatcher
from redelivery.session import Session
from redelivery_memory.adapter import MemoryAdapter

if TYPE_CHECKING:
    from redelivery.testing import MemoryBroker

__all__ = ["default_handler"]


def press_in(monkeypatch: pytest.MonkeyPatch, of: type, name: str) -> None:
    """Press Ctrl-C in the main thread's first call of a method."""
    before, pressed = getattr(of, name), list[str]()

    def call(self: Any, *given: Any, **named: Any) -> Any:
        if not pressed and threading.current_thread() is threading.main_thread():
            pressed.append(name)
            signal.raise_signal(signal.SIGINT)
        return before(self, *given, **named)

    monkeypatch.setattr(of, name, call)


def taken(broker: MemoryBroker) -> int | None:
    """Return the delivery count of the message that another consumer gets; None: it gets none."""
    with redelivery.connect(broker.uri) as other, other.consumer("q") as consumer:
        message = consumer.receive(10)
        return None if message is None else message.delivery_count


@pytest.mark.parametrize(
    ("of", "name"),
    [
        (Session, "abandon"),
        (Session, "await_commits"),
        (Dispatcher, "wait_answered"),
        (ConnectionDriver, "_write_the_rest"),
        (Dispatcher, "wait_written"),
        (MemoryAdapter, "close"),
    ],
)
def test_an_interrupted_close_ends_the_connection(
    monkeypatch: pytest.MonkeyPatch, redelivery_broker: MemoryBroker, of: type, name: str
) -> None:
    """A close that is interrupted anywhere ends the connection; another consumer gets its message."""
    redelivery_broker.send("q", "a")
    connection = redelivery.connect(redelivery_broker.uri)
    connection.__enter__()
    session = connection.session("individual")
    message = session.consumer("q").receive(10)
    assert message is not None
    if name == "_write_the_rest":
        # The closing thread writes itself if the driver's thread has not begun.
        connection._driver._thread = None
    press_in(monkeypatch, of, name)
    with pytest.raises(KeyboardInterrupt):
        connection.close()
    eventually(lambda: redelivery_broker.connections == 0)
    assert message.accept() is False, "its result is stale"
    assert taken(redelivery_broker) is not None


def test_an_interrupted_consumer_gives_its_messages_back(
    monkeypatch: pytest.MonkeyPatch, redelivery_broker: MemoryBroker
) -> None:
    """A consumer whose close is interrupted is unsubscribed; another consumer gets its messages."""
    redelivery_broker.send("q", "a")
    with redelivery.connect(redelivery_broker.uri) as connection:
        consumer = connection.consumer("q")
        assert consumer.receive(10) is not None
        with monkeypatch.context() as patch:
            press_in(patch, Dispatcher, "wait_answered")
            with pytest.raises(KeyboardInterrupt):
                consumer.close()
        assert taken(redelivery_broker) is not None

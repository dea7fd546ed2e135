"""Subscriptions during a reconnect: each is made once on the new connection."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import redelivery
from redelivery.adapter import Subscribed
from redelivery.driver.consumer.dispatcher import Dispatcher
from redelivery.errors import TransportError
from redelivery.testing import MemoryBroker

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest
    from tests.driver.twins import Twin

    from redelivery.core.commands import AdapterCommand
    from redelivery.core.events import Connected

PATIENCE = 10.0  # seconds


def test_a_subscribe_that_meets_a_reconnect_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A subscription for the lost connection is dropped; the new connection has one, with its credit once."""
    with (
        MemoryBroker() as broker,
        redelivery.connect(f"failover:({broker.uri})?initialReconnectDelay=1") as connection,
    ):
        adapter: Any = connection._driver._adapter
        begin, open_one, opened = Dispatcher.connected, adapter.open, threading.Event()
        epochs: list[int] = []

        def opens(*arguments: Any) -> Any:
            capabilities = open_one(*arguments)
            opened.set()
            return capabilities

        def meets(self: Dispatcher, event: Connected) -> Sequence[AdapterCommand]:
            commands = begin(self, event)
            epochs.append(event.epoch)
            if len(epochs) == 1:  # the connection is lost, and the next one open, before this is executed
                broker.cut()
                assert opened.wait(PATIENCE)
            return commands

        monkeypatch.setattr(adapter, "open", opens)
        monkeypatch.setattr(Dispatcher, "connected", meets)
        with connection.consumer("orders", credit=10):
            assert epochs == [1, 2]
            (subscribed,) = adapter._open[1].consumers.values()
            assert subscribed.credit == 10
        broker.send("orders", "a")
        message = connection.consumer("orders").receive(PATIENCE)
        assert message is not None
        message.accept()


def test_a_subscription_that_is_lost_with_its_connection_is_made_again(twin: Twin) -> None:
    """A subscription that is lost with its connection is made again, and is not refused."""
    connection = twin.connect()
    dispatcher = twin.call(connection.consumer("orders"))._dispatcher
    number = dispatcher.subscribe.consumer
    connection._driver._sink(Subscribed(number, TransportError("gone")))
    assert (dispatcher.closed, dispatcher.error) == (False, None)

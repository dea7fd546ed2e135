"""Consumers that end while the driver's thread writes their collected settlements."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.driver.test_closing import MEANWHILE, Written
from tests.eventually import eventually

import redelivery
import redelivery_memory.adapter
from redelivery.testing import MemoryBroker

if TYPE_CHECKING:
    import pytest


def test_nothing_overtakes_what_the_driver_is_about_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker reads a collected acceptance before it reads the end of the consumer."""
    batch = replace(redelivery_memory.CAPABILITIES, batch=True)
    monkeypatch.setattr(redelivery_memory.adapter, "CAPABILITIES", batch)
    with MemoryBroker() as broker, redelivery.connect(broker.uri) as connection:
        consumer = connection.consumer("orders")
        written = Written(connection, monkeypatch)
        closer = threading.Thread(target=consumer.close)

        def close_meanwhile() -> None:
            written.before_accept = lambda: None
            closer.start()
            closer.join(MEANWHILE)

        written.before_accept = close_meanwhile
        broker.send("orders", "a")
        message = consumer.receive(5)
        assert message is not None
        message.accept()
        eventually(lambda: closer.ident)
        closer.join()
        assert written.order.index("Accept") < written.order.index("Unsubscribe")
        assert broker.depth("orders") == 0

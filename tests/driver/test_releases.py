"""Where the broker takes nothing back before the consumer closes, as ActiveMQ over STOMP: releasing stops nobody."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import redelivery_memory.adapter

if TYPE_CHECKING:
    import pytest
    from tests.driver.twins import Twin


def test_a_consumer_that_releases_goes_on(twin: Twin, monkeypatch: pytest.MonkeyPatch) -> None:
    """Far more often than it may park: what was released first comes again, and all are accepted in the end."""
    able = replace(redelivery_memory.CAPABILITIES, release=False, counts=False)
    monkeypatch.setattr(redelivery_memory.adapter, "CAPABILITIES", able)
    connection = twin.connect("?redelivery.credit=4&redelivery.maxParked=4")
    consumer = twin.call(connection.consumer("orders"))
    for number in range(10):
        twin.broker.send("orders", str(number))
    for _ in range(30):
        message = twin.receive(consumer, 1)
        assert message is not None
        assert (message.release(), message.redelivery_count) == (True, 0)
        assert consumer.parked <= 4
    accepted: set[str] = set()
    while (message := twin.receive(consumer, 1)) is not None:
        message.accept()
        accepted.add(message.text)
    assert len(accepted) + consumer.parked == 10
    twin.call(consumer.close())
    assert len(twin.broker.messages("orders")) == 10 - len(accepted)

"""Knowledge about messages after a connection loss: it holds for the next connection only."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.driver.twins import eventually
from tests.eventually import eventually as settled

import redelivery_memory.adapter
from redelivery_memory.messages import MemoryDelivery

if TYPE_CHECKING:
    from tests.driver.twins import Twin

    from redelivery import Message

HOURS = 6 * 3600.0


def keyed(monkeypatch: pytest.MonkeyPatch, *, strong: bool) -> None:
    """Make the embedded broker know messages by a header of the broker or a producer, without a redelivered flag."""
    able = replace(redelivery_memory.CAPABILITIES, marks=False)
    monkeypatch.setattr(redelivery_memory.adapter, "CAPABILITIES", able)
    monkeypatch.setattr(MemoryDelivery, "key", property(lambda self: self.kept.message.headers.get("id")))
    monkeypatch.setattr(MemoryDelivery, "strong", property(lambda _: strong))
    monkeypatch.setattr(MemoryDelivery, "digested", not strong)
    monkeypatch.setattr(MemoryDelivery, "dated", property(lambda _: True), raising=False)


@pytest.mark.parametrize("closes", [True, False], ids=["nobody consumes", "somebody does"])
def test_an_accept_is_in_doubt_for_one_connection(
    twin: Twin, monkeypatch: pytest.MonkeyPatch, closes: bool
) -> None:
    """After the next loss an equal message is a new one, though no consumer has heard of that loss."""
    keyed(monkeypatch, strong=False)
    connection = twin.connect()
    consumer = twin.call(connection.consumer("orders"))
    twin.broker.send("orders", "pay", headers={"id": "1"})
    message = twin.receive(consumer, 5)
    assert message is not None
    message.accept()
    settled(lambda: twin.broker.messages("orders") == [])
    twin.broker.cut()
    twin.advance(1)
    if closes:
        twin.call(consumer.close())
    twin.advance(HOURS)
    twin.broker.cut()
    twin.advance(1)
    if closes:
        consumer = twin.call(connection.consumer("orders"))
    twin.broker.send("orders", "pay", headers={"id": "1"})
    again = twin.receive(consumer, 5)
    assert again is not None
    assert connection.report().deduplicated == 0
    again.accept()


@pytest.mark.parametrize("losses", [1, 2])
def test_a_dead_letter_that_is_put_back_is_handled(
    twin: Twin, monkeypatch: pytest.MonkeyPatch, losses: int
) -> None:
    """A redriven message is handled, though connections were lost right after its dead letter, and again just now."""
    keyed(monkeypatch, strong=True)
    connection, seen = twin.connect("?jms.redeliveryPolicy.maximumRedeliveries=0"), list[str]()

    def handle(message: Message) -> None:
        seen.append(message.text)
        if len(seen) == 1:
            raise ValueError("bad")

    twin.listen(connection, "orders", handle)
    twin.broker.send("orders", "a", headers={"id": "1"})
    eventually(twin, lambda: bool(twin.broker.dead_letters()))
    twin.broker.cut()
    twin.advance(3)
    twin.advance(HOURS)
    if losses > 1:
        twin.broker.cut()
        twin.advance(3)
    twin.broker.send("orders", "a", headers={"id": "1"})
    eventually(twin, lambda: twin.broker.messages("orders") == [])
    assert (seen, len(twin.broker.dead_letters())) == (["a", "a"], 1)

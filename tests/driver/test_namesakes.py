"""Messages with the same id of a producer: a verdict on one does not affect another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.driver.twins import eventually

from redelivery import SqliteLedger
from redelivery_memory.messages import MemoryDelivery

if TYPE_CHECKING:
    from pathlib import Path

    from tests.driver.twins import Twin

    from redelivery import Message

ONCE = "?jms.redeliveryPolicy.maximumRedeliveries=0"
ORDER = {"id": "order-1"}


@pytest.fixture(autouse=True)
def named_by_producers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the embedded broker know messages by their producer's id, as AMQP brokers do."""
    key = property(lambda self: (self.queue.name, self.kept.message.headers["id"]))
    monkeypatch.setattr(MemoryDelivery, "key", key)
    monkeypatch.setattr(MemoryDelivery, "strong", property(lambda _: False))


class Handler:
    """Handler that fails for "created" only."""

    def __init__(self) -> None:
        self.handled: list[str] = []

    def __call__(self, message: Message) -> None:
        self.handled.append(message.text)
        if message.text == "created":
            raise ValueError("bad")


def test_a_good_message_with_the_id_of_a_dead_letter(twin: Twin) -> None:
    """A good message with the id of a dead letter is handled, also right after a connection loss."""
    connection, handler = twin.connect(ONCE), Handler()
    twin.listen(connection, "q", handler)
    twin.broker.send("q", "created", headers=ORDER)
    eventually(twin, twin.broker.dead_letters)
    twin.broker.cut()
    twin.broker.send("q", "cancelled", headers=ORDER)
    eventually(twin, lambda: twin.broker.messages("q") == [])
    assert handler.handled == ["created", "cancelled"]
    assert [letter.text for letter in twin.broker.dead_letters()] == ["created"]
    report = connection.report()
    assert (report.accepted, report.poisoned, report.deduplicated) == (1, 1, 0)


def test_a_good_message_with_the_id_of_one_that_a_ledger_has_condemned(twin: Twin, tmp_path: Path) -> None:
    """A good message with the id of a message whose dead letter is refused is handled."""
    connection, handler = twin.connect(ONCE, ledger=SqliteLedger(tmp_path / "ledger")), Handler()
    twin.broker.refuse_settlements(2)
    twin.listen(connection, "q", handler)
    twin.broker.send("q", "created", headers=ORDER)
    eventually(twin, lambda: handler.handled)
    twin.broker.send("q", "cancelled", headers=ORDER)
    twin.advance(60)
    eventually(twin, lambda: twin.broker.messages("q") == [])
    assert handler.handled == ["created", "cancelled"]
    assert [(one.text, one.cause) for one in twin.broker.dead_letters()] == [("created", "ValueError: bad")]

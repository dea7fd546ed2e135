"""Batches of settlements, and commands that are due at once."""

from __future__ import annotations

from redelivery.core.commands import Accept, Hold, Unsubscribe
from redelivery.core.delivery import Delivery
from redelivery.driver.consumer.settlement_batch import BATCH, LINGER, SettlementBatch


def filled(count: int, *, batch: bool = True) -> SettlementBatch:
    """Return a batch with so many settlements, collected at time 0."""
    outbox = SettlementBatch()
    outbox.batch = batch
    for number in range(count):
        assert outbox.collect([Delivery(1, 1, b"")], LINGER / 2 if number else 0.0) is (number == 0)
    return outbox


def accepted(commands: object) -> list[int]:
    """Return how many deliveries each Accept has."""
    assert isinstance(commands, list)
    return [len(command.deliveries) for command in commands if isinstance(command, Accept)]


def test_settlements_are_written_when_there_are_many() -> None:
    """A full batch is due; one settlement less is not."""
    assert not filled(BATCH - 1).due(0.0)
    assert accepted(filled(BATCH).due(0.0)) == [BATCH]


def test_settlements_are_written_when_the_first_has_waited() -> None:
    """Settlements are due by the age of the oldest."""
    outbox = filled(2)
    assert not outbox.aged(LINGER * 0.9)
    assert accepted(outbox.due(LINGER)) == [2]
    assert not outbox.collecting
    assert not outbox.all()


def test_only_what_waits_for_nobody_is_urgent() -> None:
    """An urgent command takes collected settlements along, before itself; without collecting all is urgent."""
    outbox = filled(2)
    assert not outbox.urgent()
    outbox.put(Unsubscribe(1))
    commands = outbox.urgent()
    assert accepted(commands) == [2]
    assert [type(command) for command in commands] == [Accept, Unsubscribe]
    assert accepted(filled(1, batch=False).urgent()) == [1]
    assert accepted(filled(1, batch=False).due(0.0)) == [1]
    outbox.put(Hold(Delivery(1, 1, b""), 1.0, 1.0, 1, None))
    assert outbox.due(0.0)

"""Copies of messages, and their fate when a connection is lost, for tests of a history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.core.delivery import Delivery, Record

if TYPE_CHECKING:
    from collections.abc import Hashable

    from redelivery.core.message_history import MessageHistory


class Copy(Delivery):
    """One arrival of a message whose id its producer has set; the body stands for all its bytes."""

    __slots__ = ("_dated", "_key", "mark")

    def __init__(
        self,
        key: str | None = "id",
        body: bytes = b"a",
        *,
        consumer: int = 1,
        dated: bool = True,
        mark: bool = True,
    ) -> None:
        super().__init__(consumer, 1, body)
        self._key = key
        self._dated = dated
        self.mark = mark

    @property
    def key(self) -> Hashable | None:
        return self._key

    @property
    def dated(self) -> bool:
        return self._dated

    @property
    def redelivered(self) -> bool:
        return self.mark


class Proven(Copy):
    """Delivery of a message whose id the broker made."""

    __slots__ = ()

    @property
    def strong(self) -> bool:
        return True


def run_into_a_loss(history: MessageHistory, delivery: Delivery) -> Record:
    """Lose the connection while a handler has a delivery."""
    record = delivery.record = Record()
    history.connection_lost(delivery.consumer, [], [], [delivery], 0.0, 1)
    return record


def waiting(history: MessageHistory, *deliveries: Delivery, count: int = 1) -> list[Record]:
    """Lose the connection while messages are parked."""
    for delivery in deliveries:
        delivery.record = Record(count)
    history.connection_lost(1, [], deliveries, [], 0.0, 1)
    return [delivery.record for delivery in deliveries if delivery.record is not None]


def accepted(history: MessageHistory, *deliveries: Delivery) -> None:
    """Lose the connection after messages were accepted."""
    history.connection_lost(1, deliveries, [], [], 0.0, 1)


def unseen(history: MessageHistory, delivery: Delivery, age: float = 1.0, *, marks: bool = True) -> bool:
    return history.accepted_before(delivery, age, marks=marks)

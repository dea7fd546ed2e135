"""Browsing links: drains of a queue, and outcomes of the shown messages."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from redelivery_amqp.io_thread import ACCEPTED
from redelivery_amqp.profiles import AmqpArtemis, AmqpBrokerJ, AmqpClassic, AmqpRabbitMQ
from redelivery_amqp.receiver import BrowseLinks


class Wire:
    """A broker that answers each drain with the next number of messages."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.settled: list[tuple[int, int]] = []
        self.broken = False

    def drain(self, handle: object, credit: int) -> None:
        """Record a request for messages."""
        self.asked.append(credit)

    def drained(self, handle: object) -> bool:
        """Return True: the drain is answered."""
        return True

    def broken_off(self, handle: object) -> bool:
        """Return True if the answer came in the middle of a message."""
        return self.broken

    def settle(self, handles: list[object], outcome: int) -> None:
        """Record the settlements."""
        self.settled.append((len(handles), outcome))


def came(browses: BrowseLinks, receiver: Any, count: int) -> list[Any]:
    """Deliver `count` messages and answer the drain; return the browses that have shown all."""
    browses.shown(receiver, cast("Any", [SimpleNamespace(handle=object()) for _ in range(count)]))
    return list(browses.over()[0])


def test_a_look_is_over_when_a_drain_brings_nothing() -> None:
    """A browse ends only when a drain brings no message; each shown message is settled at once."""
    wire = Wire()
    browses = BrowseLinks(cast("Any", wire), ACCEPTED)
    receiver: Any = SimpleNamespace(handle=1, credit=10, came=0, browsing=True, leaving=False, ended=False)
    browses.add(receiver)
    browses.ask(receiver)
    assert came(browses, receiver, 4) == []
    assert came(browses, receiver, 3) == []
    assert wire.asked == [10, 6, 3]
    assert came(browses, receiver, 0) == [receiver]
    assert wire.settled[:2] == [(4, ACCEPTED), (3, ACCEPTED)]


def test_a_message_that_is_broken_off_is_asked_on_for() -> None:
    """The rest of a message is requested when Artemis answers a drain between two of its frames."""
    wire = Wire()
    browses = BrowseLinks(cast("Any", wire), ACCEPTED)
    receiver: Any = SimpleNamespace(handle=1, credit=10, came=0, browsing=True, leaving=False, ended=False)
    browses.add(receiver)
    wire.broken = True
    assert came(browses, receiver, 0) == []
    wire.broken = False
    assert came(browses, receiver, 1) == []
    assert wire.asked == [1, 9]
    assert came(browses, receiver, 0) == [receiver]


def test_only_classic_is_told_that_they_are_accepted() -> None:
    """Only Classic gets browsed messages accepted: it shows a released one again. Other brokers get releases."""
    assert [one for one in (AmqpClassic, AmqpArtemis, AmqpBrokerJ, AmqpRabbitMQ) if one.accepts_shown] == [
        AmqpClassic
    ]

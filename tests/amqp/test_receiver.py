"""Consumers' links: what they ask of the broker, and what the broker's answers make of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.amqp.peer import proton
from tests.amqp.test_link_registry import COMMAND, arrived

from redelivery.core.commands import Subscribe
from redelivery.errors import AdapterError
from redelivery_amqp.link_registry import LinkRegistry
from redelivery_amqp.profiles import AmqpArtemis
from redelivery_amqp.proton_engine import REJECTED
from redelivery_amqp.receiver import ReceiverLink

if TYPE_CHECKING:
    from redelivery.errors import RedeliveryError


class Wire:
    """Proton's connection, without a socket; writes down what is settled."""

    def __init__(self) -> None:
        self.connection = proton.Connection()
        self.settled: dict[str, int] = {}

    def flow(self, *_: object) -> None:
        """No credit is given."""

    def settle(self, handles: list[str], outcome: int) -> None:
        self.settled.update(dict.fromkeys(handles, outcome))

    def masked(self, text: str) -> str:
        return text


class Attached:
    """A consumer whose link the broker has taken."""

    def __init__(self) -> None:
        self.wire = Wire()
        self.lost: list[RedeliveryError] = []
        self.answers: list[RedeliveryError | None] = []
        self.links = LinkRegistry(
            cast("Any", self.wire),
            AmqpArtemis(),
            "c",
            1,
            lambda _: None,
            lambda action: action(),
            lambda error, _: self.lost.append(error),
            lambda: None,
        )
        self.receiver = self.links.add(COMMAND, self.answers.append)
        self.links.attach(self.receiver)
        self.receiver.attached = True

    def event(self, name: str, condition: str | None = None) -> Any:
        """Return what proton reports of the link of that name."""
        remote = None if condition is None else proton.Condition(condition, "says the broker")
        return SimpleNamespace(link=SimpleNamespace(name=name, remote_condition=remote))


@pytest.fixture
def attached() -> Attached:
    """Return one on a connection that stands."""
    return Attached()


@pytest.mark.parametrize(
    ("condition", "stops"),
    [("amqp:resource-deleted", True), ("amqp:unauthorized-access", True), ("amqp:internal-error", False)],
)
def test_a_consumer_whose_queue_is_gone_stops(attached: Attached, condition: str, stops: bool) -> None:
    """If another try would end the same way, the consumer stops with the broker's words; else the connection is new."""
    attached.links.on_closed(attached.event("c-1-7", condition))
    told = attached.answers if stops else attached.lost
    assert [str(error) for error in told] == [
        "the broker ended the consumer of queue://orders: says the broker"
    ]
    assert isinstance(told[0], AdapterError)
    assert (attached.lost if stops else attached.answers) == []


def test_a_rejection_is_confirmed_by_the_answer_to_a_later_frame(attached: Attached) -> None:
    """No broker answers a rejection: it counts as carried out when the broker has answered what was asked after it."""
    (delivery,) = arrived(attached.receiver, "bad")
    confirmed: list[RedeliveryError | None] = []
    attached.links.reject(delivery, confirmed.append)
    assert attached.wire.settled == {"bad": REJECTED}
    assert confirmed == []
    (asked,) = attached.links._named.keys() - {"c-1-7"}
    attached.links.on_opened(attached.event(asked))
    assert confirmed == [None]


@pytest.mark.parametrize("subscription", [None, "reports"])
def test_a_durable_subscription_outlives_its_link(subscription: str | None) -> None:
    """The broker is asked to keep a named subscription, with its messages, for ever; and no other consumer's."""
    command = Subscribe(7, "topic://prices", 10, subscription=subscription)
    receiver, connection = ReceiverLink(command, 1, AmqpArtemis(), lambda _: None), proton.Connection()
    receiver.attach(connection, "reports")
    source, terminus = receiver._receiver.source, proton.Terminus
    kept = source.durability == terminus.DELIVERIES, source.expiry_policy == terminus.EXPIRE_NEVER
    assert kept == (subscription is not None, subscription is not None)

"""Consumers of several destinations: a message's `to` counts only if the subscription covers it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.amqp.test_delivery import delivery, message

from redelivery_amqp import subscribed_names
from redelivery_amqp.profiles import AmqpArtemis, AmqpBrokerJ, AmqpClassic, AmqpRabbitMQ
from redelivery_amqp.subscribed_names import SubscribedNames

if TYPE_CHECKING:
    from redelivery_amqp.profile_base import AmqpProfile

ARTEMIS, CLASSIC, BROKER_J, RABBITMQ = AmqpArtemis(), AmqpClassic(), AmqpBrokerJ(), AmqpRabbitMQ()


@pytest.mark.parametrize(("profile", "subscribed", "to"), [
    (ARTEMIS, "queue://w.x.>", "admin.x"), (CLASSIC, "queue://w.x.>", "queue://admin.x"),
    (CLASSIC, "queue://w.x.>", "topic://w.x.orders"), (ARTEMIS, "queue://w.*.x", "w.a.b.x"),
    (ARTEMIS, "queue://w.#", "admin.x"), (ARTEMIS, "queue://w.>", "w.>"), (ARTEMIS, "queue://w.>", "w.#"),
    (ARTEMIS, "queue://w.>", "w.a,w.b"), (ARTEMIS, "queue://w.>", "w.a,"),
    (ARTEMIS, "queue://w.>", "w.a,topic://"), (CLASSIC, "queue://w.>", "w.x,y://z"),
    (RABBITMQ, "topic://w.#", "/topic/w.a,"), (ARTEMIS, "queue://w.>", "w." + "a" * 2000),
    (ARTEMIS, "native://w.#", "admin"),
    (BROKER_J, "topic://w.#", "admin"), (BROKER_J, "topic://w.#", "amq.topic/admin"), (CLASSIC, "queue://w.>", "temp-queue://w.x"),
    (RABBITMQ, "native:///exchange/x/a.#", "/queue/admin"), (ARTEMIS, "native://w::q", "admin"),
    (RABBITMQ, "topic://a.*.#.b", "/topic/a.b"), (ARTEMIS, "native:// ?", "admin"),
])  # fmt: skip
def test_a_destination_that_is_not_covered_is_the_subscriptions(
    profile: AmqpProfile, subscribed: str, to: str
) -> None:
    """A `to` that is not covered is ignored: its producer could choose another queue's policy."""
    assert delivery(message(address=to), subscribed, profile).destination == subscribed


@pytest.mark.parametrize(("profile", "subscribed", "to", "seen"), [
    (ARTEMIS, "queue://w.x.>", "w.x.a.b", "queue://w.x.a.b"), (ARTEMIS, "queue://w.x.>", "w.x", "queue://w.x"),
    (CLASSIC, "queue://w.*.c", "queue://w.b.c", "queue://w.b.c"), (CLASSIC, "queue://w.*.c", "w.b.c", "queue://w.b.c"),
    (ARTEMIS, "queue://w.#", "w.a.b", "queue://w.a.b"), (RABBITMQ, "topic://a.*.#.b", "/topic/a.x.y.b", "topic://a.x.y.b"),
    (BROKER_J, "topic://w.#.c", "amq.topic/w.c", "topic://w.c"), (CLASSIC, "native://queue://w.>", "queue://w.a", "queue://w.a"),
    (ARTEMIS, "native://w.#", "w.a", "native://w.a"), (CLASSIC, "native://queue://a,queue://b", "queue://b", "queue://b"),
    (RABBITMQ, "native:///exchange/x/a.#", "/exchange/x/a.b", "native:///exchange/x/a.b"),
])  # fmt: skip
def test_a_destination_that_is_covered_is_the_messages(
    profile: AmqpProfile, subscribed: str, to: str, seen: str
) -> None:
    """A `to` that is covered is the destination, in the library's wildcards and in the broker's."""
    assert delivery(message(address=to), subscribed, profile).destination == seen


def test_names_without_end_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache of names is limited: a producer can give each message another one."""
    monkeypatch.setattr(subscribed_names, "MOST_KEPT", 3)
    names = SubscribedNames("queue://w.>", ARTEMIS)
    for number in range(10):
        assert names.destination_of(f"w.{number}") == f"queue://w.{number}"
        assert len(names._known) <= 3

"""Dead-letter places of a connection, its consumers and its exceptions: arguments, refusals, and what is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import redelivery
from redelivery import Classifier, ConfigurationError, DeadLetterMap, DeadLetterStrategy, RedeliveryPolicy
from redelivery.testing import MemoryBroker

if TYPE_CHECKING:
    from redelivery import Message

ONCE = redelivery.RedeliveryPolicyMap(default=RedeliveryPolicy(maximum_redeliveries=0))
PLACES = DeadLetterMap({"orders.>": DeadLetterStrategy(destination="orders.dead")})


def fails(message: Message) -> None:
    raise KeyError(message.text)


def test_a_listener_has_a_place_of_its_own() -> None:
    """`listen(dead_letter=…)` comes before the map; another listener of the same connection keeps the map's."""
    with (
        MemoryBroker() as broker,
        redelivery.connect(broker.uri, policies=ONCE, dead_letters=PLACES) as connection,
    ):
        for name in ("orders.eu", "orders.us"):
            connection.send(name, name)
        connection.listen("orders.eu", fails, dead_letter="eu.dead")
        connection.listen("orders.us", fails)
        connection.run(until_idle=0.0)
        assert [letter.body for letter in broker.messages("eu.dead")] == [b"orders.eu"]
        assert [letter.body for letter in broker.messages("orders.dead")] == [b"orders.us"]
        assert broker.dead_letters() == []


@pytest.mark.parametrize(
    ("uri", "options", "message"),
    [
        ("?redelivery.deadLetterDestination=d", {"dead_letters": PLACES}, "dead_letters= and dead-letter options"),
        ("?redelivery.deadLetterMap.a.destination=d", {"dead_letters": PLACES}, "contradict each other"),
        ("", {"dead_letters": {"a": "d"}}, "must be a DeadLetterMap, not dict"),
        ("", {"dead_letters": DeadLetterMap(default=DeadLetterStrategy(
            strategy="individual", destination_per_durable_subscriber=True))}, "needs jms.clientID"),
        ("?redelivery.scheduler=broker", {"dead_letters": DeadLetterMap({"a": DeadLetterStrategy(dead_letter="ack")})},
         "contradicts redelivery.scheduler=broker"),
    ],
)  # fmt: skip
def test_refused_arguments(uri: str, options: dict[str, Any], message: str) -> None:
    """A map that contradicts the URI, or is none, is refused before any I/O."""
    with pytest.raises(ConfigurationError, match=message):
        redelivery.connect(f"memory://places{uri}", **options)


def test_refused_places() -> None:
    """A place of a consumer, or of a rule for exceptions, must be one destination, and not what is consumed."""
    with pytest.raises(ConfigurationError, match="poison: to must be one queue"):
        Classifier().poison(KeyError, to="a.>")
    with MemoryBroker() as broker, redelivery.connect(broker.uri, dead_letters=PLACES) as connection:
        with pytest.raises(ConfigurationError, match="dead_letter must be one queue"):
            connection.listen("orders.eu", fails, dead_letter="a,b")
        for name, options in (
            ("orders.dead", {}),
            ("orders.*", {}),
            ("a", {"dead_letter": "a"}),
            ("a", {"errors": Classifier().poison(KeyError, to="a")}),
        ):
            with pytest.raises(ConfigurationError, match="the dead-letter destination of this"):
                connection.consumer(name, **options)

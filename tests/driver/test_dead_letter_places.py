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
        for name, options, whose in (
            ("orders.dead", {}, "connection: to read"),
            ("orders.*", {}, "connection: to read"),
            ("a", {"dead_letter": "a"}, "consumer: name another"),
            ("a", {"errors": Classifier().poison(KeyError, to="a")}, "rule for exceptions: give"),
            ("a", {"errors": Classifier().poison(KeyError, to="native://a")}, "rule for exceptions: give"),
        ):
            with pytest.raises(ConfigurationError, match=f"the dead-letter destination of this {whose}"):
                connection.consumer(name, **options)


def test_places_in_a_circle_are_refused() -> None:
    """A place whose own dead letters come back would keep a message that fails for ever: no consumer of it starts."""
    circle = DeadLetterMap(
        {
            "a": DeadLetterStrategy(destination="b"),
            "b": DeadLetterStrategy(destination="c"),
            "c": DeadLetterStrategy(destination="a"),
            "end": DeadLetterStrategy(destination="over"),
        },
        default=DeadLetterStrategy(destination="end"),
    )
    with MemoryBroker() as broker, redelivery.connect(broker.uri, dead_letters=circle) as connection:
        for name, told in (("a", "go to queue://b, and those of queue://b back"), ("c", "go to queue://a")):
            with pytest.raises(ConfigurationError, match=told):
                connection.consumer(name)
        for name in ("end", "x"):
            connection.consumer(name)
        connection.consumer("a", dead_letter="elsewhere")


@pytest.mark.parametrize(
    ("entries", "default"),
    [
        (
            {"DLQ.a": DeadLetterStrategy(destination="a")},
            DeadLetterStrategy(strategy="individual", queue_prefix="DLQ."),
        ),
        (
            {
                "a": DeadLetterStrategy(destination="b"),
                "b": DeadLetterStrategy(strategy="individual", queue_prefix="", queue_suffix="x"),
                "bx": DeadLetterStrategy(destination="a"),
            },
            DeadLetterStrategy(),
        ),
    ],
    ids=["the default", "an entry"],
)
def test_a_circle_through_individual_places_is_refused(
    entries: dict[str, DeadLetterStrategy], default: DeadLetterStrategy
) -> None:
    """A place that is named after the queue is a step of the circle as one that the map names."""
    places = DeadLetterMap(entries, default=default)
    with (
        MemoryBroker() as broker,
        redelivery.connect(broker.uri, dead_letters=places) as connection,
        pytest.raises(ConfigurationError, match="circulates for ever"),
    ):
        connection.consumer("a")


def test_a_rule_for_exceptions_does_not_hinder_a_transacted_session() -> None:
    """There commit and rollback decide: the place of a rule is not used, and may be consumed."""
    rules = Classifier().poison(KeyError, to="orders.invalid")
    uri = "memory://transacted"
    with redelivery.connect(uri, errors=rules) as connection:
        connection.session("transacted").consumer("orders.invalid")


@pytest.mark.parametrize("options", ["processNonPersistent=false", "sendToDlqIfMaxRetriesExceeded=false"])
def test_what_is_named_is_kept(options: str) -> None:
    """A place of a consumer, or of an exception, has the dead letter also where the connection would drop it."""
    with MemoryBroker() as broker:
        rules = Classifier().poison(KeyError, to="invalid")
        with redelivery.connect(
            f"{broker.uri}?redelivery.{options}", policies=ONCE, errors=rules
        ) as connection:
            connection.send("a", "by exception", persistent=False)
            connection.send("b", "by consumer", persistent=False)
            connection.listen("a", fails)

            @connection.listen("b", dead_letter="own")
            def refuses(message: Message) -> None:
                raise ValueError(message.text)

            connection.run(until_idle=0.0)
        assert [letter.body for letter in broker.messages("invalid")] == [b"by exception"]
        assert [letter.body for letter in broker.messages("own")] == [b"by consumer"]

"""Dead-letter places of a connection, its consumers and its exceptions: arguments, refusals, and what is kept."""

from __future__ import annotations

import re
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest

import redelivery
from redelivery import Classifier, ConfigurationError, DeadLetterMap, DeadLetterStrategy, RedeliveryPolicy
from redelivery.testing import MemoryBroker

if TYPE_CHECKING:
    from tests.driver.twins import Twin

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


@pytest.mark.parametrize(
    ("options", "places", "refused"),
    [
        ("reportInterval=5", DeadLetterMap(default=DeadLetterStrategy(strategy="discarding")), ""),
        ("reportInterval=5", DeadLetterMap({"a": DeadLetterStrategy(strategy="discarding")}), ""),
        ("reportInterval=5", PLACES, "reportInterval needs strategy=discarding, and it is shared"),
        ("sendToDlqIfMaxRetriesExceeded=false", PLACES, ""),
        (
            "sendToDlqIfMaxRetriesExceeded=false",
            DeadLetterMap(default=DeadLetterStrategy(strategy="discarding")),
            "has no effect: strategy=discarding keeps no dead letter",
        ),
        (
            "fallbackToDeadLetter=false",
            DeadLetterMap(default=DeadLetterStrategy(dead_letter="discard")),
            "has no effect: dead_letter=discard keeps no dead letter",
        ),
    ],
)
def test_options_of_the_uri_are_checked_against_the_map_that_is_given(
    options: str, places: DeadLetterMap, refused: str
) -> None:
    """An option beside the strategies is honoured, or refused, by those of `dead_letters=` as by those of a URI."""
    policies = redelivery.RedeliveryPolicyMap({"a": RedeliveryPolicy()})
    with pytest.raises(ConfigurationError, match=refused) if refused else nullcontext():
        redelivery.connect(f"memory://places?redelivery.{options}", policies=policies, dead_letters=places)


def test_refused_places() -> None:
    """A place of a consumer, or of a rule for exceptions, must be one destination, and not what is consumed."""
    with pytest.raises(ConfigurationError, match="poison: to must be one queue"):
        Classifier().poison(KeyError, to="a.>")
    with MemoryBroker() as broker, redelivery.connect(broker.uri, dead_letters=PLACES) as connection:
        with pytest.raises(ConfigurationError, match="dead_letter must be one queue"):
            connection.listen("orders.eu", fails, dead_letter="a,b")
        for name, options, whose in (
            (
                "orders.dead",
                {},
                r"connection \(redelivery.deadLetterMap.queue://orders.>.destination\): to read",
            ),
            (
                "orders.*",
                {},
                r"connection \(redelivery.deadLetterMap.queue://orders.>.destination\): to read",
            ),
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
        for name, told in (
            (
                "a",
                "those of queue://a to queue://b (redelivery.deadLetterMap.queue://a.destination), those of queue://b",
            ),
            (
                "c",
                "those of queue://c to queue://a (redelivery.deadLetterMap.queue://c.destination), those of queue://a",
            ),
        ):
            with pytest.raises(ConfigurationError, match=re.escape(told)):
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
        pytest.raises(ConfigurationError, match="would circulate for ever"),
    ):
        connection.consumer("a")


def invalid(place: str) -> Classifier:
    return Classifier().poison(KeyError, to=place)


INDIVIDUAL = "redelivery.deadLetterStrategy=individual"


@pytest.mark.parametrize(
    ("options", "consumers", "told"),
    [
        (
            "",
            [("a", {}), ("DLQ", {"dead_letter": "a"})],
            "those of queue://DLQ to queue://a (dead_letter=), those of queue://a to queue://DLQ (by default); name",
        ),
        (
            "",
            [("DLQ", {"dead_letter": "a"}), ("a", {})],
            "those of queue://a to queue://DLQ (by default), those of",
        ),
        (
            "",
            [("a", {"errors": invalid("b")}), ("b", {"errors": invalid("a")})],
            "those of queue://b to queue://a (errors=), those of queue://a to queue://b (errors=)",
        ),
        (
            "",
            [("a", {"dead_letter": "b"}), ("b", {"dead_letter": "c"}), ("c", {"dead_letter": "a"})],
            "queue://b to",
        ),
        (
            "redelivery.deadLetterDestination=b",
            [("a", {}), ("b", {"dead_letter": "a"})],
            "to queue://b (redelivery.deadLetterDestination)",
        ),
        (
            "redelivery.deadLetterMap.a.destination=b",
            [("a", {}), ("b", {"dead_letter": "a"})],
            "to queue://b (redelivery.deadLetterMap.queue://a.destination)",
        ),
        # A wildcard, and places that are named after the message's own queue.
        (
            "",
            [("a.*", {"dead_letter": "b"}), ("b", {"dead_letter": "a.x"})],
            "those of queue://b to queue://a.x",
        ),
        (
            INDIVIDUAL,
            [("a.*", {}), ("DLQ.a.x", {"dead_letter": "a.x"})],
            "those of queue://a.x to queue://DLQ.a.x",
        ),
        (
            INDIVIDUAL,
            [("DLQ.a.x", {"dead_letter": "a.x"}), ("a.*", {})],
            "those of queue://a.* to queue://DLQ.a.*",
        ),
        # No consumer here has `a` or `b`: the map says where their dead letters go.
        (
            "redelivery.deadLetterMap.a.destination=b&redelivery.deadLetterMap.b.destination=c",
            [("c", {"dead_letter": "a"})],
            "those of queue://b to queue://c (redelivery.deadLetterMap.queue://b.destination); name",
        ),
        (
            "",
            [("a", {"dead_letter": "topic://b"}), ("topic://b", {"dead_letter": "a"})],
            "those of topic://b to",
        ),
        (
            "",
            [("a", {"dead_letter": "native://b"}), ("b", {"dead_letter": "a"})],
            "to native://b (dead_letter=)",
        ),
    ],
)
def test_consumers_whose_dead_letters_go_in_a_circle_are_refused(
    twin: Twin, options: str, consumers: list[tuple[str, dict[str, Any]]], told: str
) -> None:
    """The last consumer of a circle does not begin, whatever names its steps; the error has each of them."""
    connection = twin.connect(f"?{options}" if options else "", policies=ONCE)
    *before, (name, given) = consumers
    for each, its in before:
        twin.call(connection.consumer(each, **its))
    with pytest.raises(ConfigurationError, match="would circulate for ever") as refused:
        twin.call(connection.consumer(name, **given))
    assert told in str(refused.value)
    # The refused one is no part of the connection: with another place it begins.
    twin.call(connection.consumer(name, dead_letter="elsewhere"))


@pytest.mark.parametrize(
    ("options", "consumers"),
    [
        (
            "",
            [
                ("a", {"dead_letter": "b"}),
                ("b", {"dead_letter": "c"}),
                ("c", {}),
                ("DLQ", {"dead_letter": "again"}),
            ],
        ),
        # The letters of each queue behind the wildcard go to that queue's own place.
        (INDIVIDUAL, [("DLQ.b.x", {"dead_letter": "a.x"}), ("a.*", {})]),
        (
            "redelivery.deadLetterStrategy=discarding&redelivery.discard=a",
            [("a", {}), ("DLQ", {"dead_letter": "a"})],
        ),
        ("redelivery.deadLetter=discard", [("a", {}), ("DLQ", {"dead_letter": "a"})]),
        # What the map says of a queue that is consumed here without it does not count.
        (
            "redelivery.deadLetterMap.b.destination=a",
            [("b", {"dead_letter": "end"}), ("a", {"dead_letter": "b"})],
        ),
        # Names that would grow without an end are no circle of the consumer that only leads to them.
        (
            "redelivery.deadLetterMap.b.strategy=individual&redelivery.deadLetterMap.DLQ.>.strategy=individual",
            [("b", {})],
        ),
    ],
)
def test_a_chain_that_ends_is_no_circle(
    twin: Twin, options: str, consumers: list[tuple[str, dict[str, Any]]]
) -> None:
    """Consumers of others' dead letters begin, if their own do not come back."""
    connection = twin.connect(f"?{options}" if options else "", policies=ONCE)
    for name, given in consumers:
        twin.call(connection.consumer(name, **given))


def test_a_closed_consumer_is_no_part_of_a_circle(twin: Twin) -> None:
    """Once a consumer has ended, another one may send its dead letters there."""
    connection = twin.connect(policies=ONCE)
    first = twin.call(connection.consumer("a"))
    twin.call(first.close())
    twin.call(connection.consumer("DLQ", dead_letter="a"))


def test_listeners_in_a_circle_end_the_run() -> None:
    """The listener that closes the circle is refused when it starts: no message is handled for ever."""
    with MemoryBroker() as broker, redelivery.connect(broker.uri, policies=ONCE) as connection:
        connection.send("a", "body")
        connection.listen("a", fails)
        connection.listen("DLQ", fails, dead_letter="a")
        with pytest.raises(ConfigurationError, match="would circulate for ever"):
            connection.run(until_idle=0.0)


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

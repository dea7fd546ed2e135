"""Facts of RabbitMQ 4's queues, from the management node and from their messages."""

from __future__ import annotations

from typing import Any

import pytest

from redelivery import parse_uri
from redelivery.brokers.facts import numbers
from redelivery.core.commands import Subscribe
from redelivery_amqp.queue_facts import QueueFacts
from redelivery_amqp.rabbitmq_profile import AmqpRabbitMQ, AmqpRabbitMQ4, queue_address

SUBSCRIBE = Subscribe(1, "queue://orders", 10)
NEWEST, OLDER = AmqpRabbitMQ4((4, 3)), AmqpRabbitMQ4((4, 2, 9))
SAFE = {
    "x-dead-letter-exchange": "dead",
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "reject-publish",
}


def able(
    kind: str, arguments: dict[str, Any] | None = None, profile: AmqpRabbitMQ4 = NEWEST, **asked: Any
) -> Any:
    """Return the capabilities of a queue."""
    return profile.for_queue(QueueFacts(kind, arguments or {}), Subscribe(1, "queue://orders", 10, **asked))


@pytest.mark.parametrize("body", [None, "text", 7, [], {}])
def test_an_answer_that_says_nothing_is_no_fact(body: object) -> None:
    """A reply without facts yields None: nothing about the queue is certain."""
    facts = QueueFacts.of(body)
    assert facts is None or (facts.kind, facts.arguments) == ("", {})
    assert (facts is None) == (not isinstance(body, dict))


def test_facts_of_impossible_types_are_unknown() -> None:
    """Facts with impossible types are unknown: a kind that is a number, arguments that are a list."""
    assert QueueFacts.of({"type": 3, "arguments": [1]}) == QueueFacts()
    assert QueueFacts.of({"type": "quorum", "arguments": {1: 2}}) == QueueFacts("quorum", {"1": 2})


@pytest.mark.parametrize("missing", [None, *SAFE])
def test_a_dead_letter_is_kept_for_certain_by_all_three_arguments(missing: str | None) -> None:
    """Dead letters are kept only with all three arguments; otherwise the broker can drop them."""
    arguments = {name: value for name, value in SAFE.items() if name != missing}
    assert QueueFacts("quorum", arguments).keeps_dead_letters == (missing is None)
    assert not QueueFacts("classic", arguments).keeps_dead_letters
    assert able("quorum", arguments).poison_persistent == (missing is None)
    assert able("quorum", arguments).poison_non_persistent == (missing is None)


@pytest.mark.parametrize(
    ("kind", "arguments", "limit"),
    [
        ("quorum", {}, 20),
        ("quorum", {"x-delivery-limit": 3}, 3),
        ("quorum", {"x-delivery-limit": 0}, 0),
        ("quorum", {"x-delivery-limit": -1}, None),
        ("quorum", {"x-dead-letter-exchange": ""}, None),
        ("classic", {}, None),
        ("stream", {}, None),
    ],
)
def test_a_queue_that_drops_messages_says_so(kind: str, arguments: dict[str, Any], limit: int | None) -> None:
    """A quorum queue with a delivery limit and no dead-letter exchange has a caution with the limit."""
    said = able(kind, arguments).caution
    assert said == "" if limit is None else f"after {limit} lost connections" in said


@pytest.mark.parametrize(
    ("kind", "arguments", "limit"),
    [
        ("quorum", {}, 20),
        ("quorum", {"x-delivery-limit": 3, "x-dead-letter-exchange": ""}, 3),
        ("quorum", {"x-delivery-limit": "odd"}, 20),
        ("quorum", {"x-delivery-limit": -1}, None),
        ("classic", {}, None),
    ],
)
def test_before_4_3_a_look_counts_against_the_limit(
    kind: str, arguments: dict[str, Any], limit: int | None
) -> None:
    """Before 4.3 a quorum queue has a limit of releases, which its arguments name; since 4.3 none has."""
    assert able(kind, arguments, OLDER).release_limit == limit
    assert able(kind, arguments).release_limit is None
    assert (OLDER.capabilities.release_limit, NEWEST.capabilities.release_limit) == (20, None)
    said = able(kind, arguments, OLDER).caution
    assert ("connections or releases" in said) == (
        limit is not None and "x-dead-letter-exchange" not in arguments
    )


@pytest.mark.parametrize(
    ("version", "options", "made"),
    [
        ((4, 0, 5), "x-queue-type:quorum", {"x-queue-type": "quorum", "x-delivery-limit": -1}),
        (
            (4, 2),
            "x-queue-type:quorum,x-delivery-limit:5",
            {"x-queue-type": "quorum", "x-delivery-limit": 5},
        ),
        # The broker refuses the argument of a classic queue.
        ((4, 0, 5), "x-queue-type:classic", {"x-queue-type": "classic"}),
        ((4, 0, 5), "x-max-length:7", {"x-max-length": 7}),
        ((4, 3, 6), "x-queue-type:quorum", {"x-queue-type": "quorum"}),
        ((), "x-queue-type:quorum", {"x-queue-type": "quorum"}),
    ],
)
def test_a_dead_letter_queue_of_ours_has_no_limit_where_looks_count(
    version: tuple[int, ...], options: str, made: dict[str, Any]
) -> None:
    """Before 4.3 a quorum dead-letter queue is declared without a limit, unless the user names one."""
    settings = parse_uri(
        f"amqp://host?redelivery.deadLetterArguments={options}&redelivery.queueArguments={options}"
    )
    profile = AmqpRabbitMQ4(version, settings)
    assert profile.dead_letter_arguments == made
    assert profile.queue_arguments == {name: value for name, value in made.items() if f"{name}:" in options}


@pytest.mark.parametrize(
    ("profile", "kind", "counts", "native"),
    [
        (NEWEST, "quorum", True, True),
        (NEWEST, "classic", True, False),
        (NEWEST, "stream", False, False),
        (NEWEST, "", False, False),
        (OLDER, "quorum", True, False),
        (OLDER, "classic", False, False),
    ],
)
def test_what_a_kind_of_queue_counts_and_holds_back(
    profile: AmqpRabbitMQ4, kind: str, counts: bool, native: bool
) -> None:
    """Only quorum queues hold messages back, since 4.3; before 4.3 classic queues, on one node, do not count."""
    found = able(kind, profile=profile)
    assert (found.counts, found.reschedule) == (counts, "native" if native else "none")
    assert found.replicated == (kind in ("quorum", "stream"))
    assert bool(found.advice) == (profile is NEWEST and kind in ("quorum", "classic"))
    assert not able(kind, profile=profile, rescheduled=True).advice


@pytest.mark.parametrize(
    ("hold", "timeout"), [(None, 43200.0), (0.0, 1800.0), (1440.0, 1800.0), (7200.0, 9000.0), (1e9, 43200.0)]
)
def test_a_consumer_asks_for_what_it_needs_within_bounds(hold: float | None, timeout: float) -> None:
    """A consumer asks for a timeout between 30 min and 12 h, of which it uses four fifths."""
    assert NEWEST.consumer_timeout(hold) == timeout
    assert able("quorum", hold=hold).max_hold == timeout
    assert able("classic", hold=hold).max_hold is None
    assert OLDER.consumer_timeout(hold) is None
    assert able("quorum", hold=hold, profile=OLDER).max_hold == 1800.0


def test_the_user_may_name_the_timeout() -> None:
    """A timeout of the user is asked for, whatever the policies need."""
    settings = parse_uri("amqp://host?redelivery.consumerTimeout=90000")
    profile = AmqpRabbitMQ4((4, 3), settings)
    assert profile.consumer_timeout(7200.0) == 90.0


def test_before_4_3_a_release_counts() -> None:
    """Before 4.3 a release counts against the limit of a quorum queue: `release_counts` is True."""
    assert (OLDER.capabilities.release_counts, NEWEST.capabilities.release_counts) == (True, False)
    assert (OLDER.capabilities.reschedule, NEWEST.capabilities.reschedule) == ("none", "native")
    assert (OLDER.holds_back, NEWEST.holds_back) == (False, True)
    assert "4.3" in OLDER.capabilities.reschedule_needs
    assert (OLDER.capabilities.reschedule_proof, NEWEST.capabilities.reschedule_proof) == (
        "certain",
        "certain",
    )


@pytest.mark.parametrize("name", ["orders", "a b", "a/b", "a%b", "b\u00fcro", "a.b", "a?b#c", "%2F"])
def test_any_name_of_a_queue_has_an_address(name: str) -> None:
    """The name of a queue is escaped in its address, and read back; a topic is a routing key."""
    assert NEWEST.address(f"queue://{name}") == queue_address(name)
    assert not set(" ?#/").intersection(queue_address(name).removeprefix("/queues/"))
    assert NEWEST.qualified(NEWEST.address(f"queue://{name}"), "topic") == f"queue://{name}"
    assert NEWEST.qualified(NEWEST.address(f"topic://{name}"), "queue") == f"topic://{name}"
    assert NEWEST.address(f"native://{name}") == name


@pytest.mark.parametrize(
    ("annotations", "address"),
    [
        ({"x-routing-key": "a/b", "x-exchange": ""}, "/queues/a%2Fb"),
        ({"x-routing-key": "a.b", "x-exchange": "amq.topic"}, "/exchanges/amq.topic/a.b"),
        ({"x-routing-key": "a.b", "x-exchange": "own"}, None),
        ({"x-exchange": ""}, None),
        ({"x-routing-key": 7, "x-exchange": ""}, None),
    ],
)
def test_where_a_message_was_routed(annotations: dict[str, Any], address: str | None) -> None:
    """The destination of a message is the broker's routing key and exchange, not the producer's `to`."""
    assert NEWEST.sent_to(annotations) == address


@pytest.mark.parametrize(
    ("annotations", "headers", "cause", "origin"),
    [
        ({"x-opt-redeliveryCause": "ours", "x-first-death-reason": "rejected"}, {}, "ours", None),
        (
            {"x-first-death-reason": "delivery_limit", "x-first-death-queue": "q"},
            {},
            "delivery_limit",
            "queue://q",
        ),
        ({"x-opt-redeliveryCause": "", "x-first-death-reason": "x"}, {}, None, None),
        ({"x-opt-redeliveryCause": 7}, {}, None, None),
        ({"x-first-death-queue": 7}, {}, None, None),
        ({"x-first-death-queue": "q"}, {"redeliveryOriginalDestination": "topic://t"}, None, None),
    ],
)
def test_what_a_dead_letter_tells(
    annotations: dict[str, Any], headers: dict[str, Any], cause: str | None, origin: str | None
) -> None:
    """A note of the cause replaces the broker's reason; a copy has its origin in its own header."""
    assert (NEWEST.died_of(annotations, headers), NEWEST.origin(annotations, headers)) == (cause, origin)


@pytest.mark.parametrize(
    ("version", "found"),
    [("4.3.6", (4, 3, 6)), ("4.3.6-rc.1", (4, 3, 6)), ("4", (4,)), ("", ()), ("v4", ()), ("4.x", (4,))],
)
def test_the_numbers_of_a_version(version: str, found: tuple[int, ...]) -> None:
    """A version is the numbers at its beginning."""
    assert numbers(version) == found


def test_arguments_have_the_types_that_the_broker_wants() -> None:
    """Queue arguments that are numbers or truth values are typed; others stay text."""
    uri = (
        "amqp://host?redelivery.queueArguments=x-max-length:7,x-delivery-limit:-1,x-single-active-consumer:true,"
        "x-queue-type:quorum,x-dead-letter-exchange:1x"
    )
    profile = AmqpRabbitMQ4((4, 3), parse_uri(uri))
    assert profile.queue_arguments == {
        "x-max-length": 7,
        "x-delivery-limit": -1,
        "x-single-active-consumer": True,
        "x-queue-type": "quorum",
        "x-dead-letter-exchange": "1x",
    }
    assert profile.dead_letter_arguments == {}


@pytest.mark.parametrize("profile", [AmqpRabbitMQ(), NEWEST], ids=["3", "4"])
def test_a_mark_of_the_first_consumer(profile: AmqpRabbitMQ | AmqpRabbitMQ4) -> None:
    """A message with first-acquirer false was delivered before; without the field it was not."""
    assert [profile.redelivered(first) for first in (True, False, None)] == [False, True, False]


@pytest.mark.parametrize(
    ("destination", "is_one"), [("temp-queue://x", True), ("temp-topic://x", True), ("queue://x", False)]
)
def test_there_are_no_temporary_destinations(destination: str, is_one: bool) -> None:
    """Temporary destinations are refused with the reason."""
    problem = NEWEST.problem(destination)
    assert (problem is not None and "temporary" in problem) == is_one


def test_nothing_is_advised_to_a_consumer_of_a_topic() -> None:
    """A consumer of a topic gets no advice: its queue ends with it."""
    found = NEWEST.for_queue(QueueFacts("classic"), Subscribe(1, "topic://news", 10))
    assert found is not None
    assert not found.advice

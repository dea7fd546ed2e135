"""Commands that remove a poison message, by strategy, route and the broker's capabilities."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.bench import CAUSE, Bench, routed
from tests.core.model import Letter

from redelivery.core.capabilities import Capabilities
from redelivery.core.commands import Accept, Command, Dropped, Forward, PoisonAck, SetAside
from redelivery.core.dead_lettering.dead_letter_strategy import DeadLetterMap, DeadLetterStrategy
from redelivery.core.dead_lettering.routing import DeadLetterRouting
from redelivery.core.delivery import EXPIRED, Cause, Delivery, Record
from redelivery.core.destination import Destination
from redelivery.core.events import Failed, Poisoned
from redelivery.core.policy.policy_map import RedeliveryPolicyMap
from redelivery.core.policy.redelivery_policy import RedeliveryPolicy
from redelivery.core.policy.wildcards import covers

if TYPE_CHECKING:
    from redelivery.core.delivery import BodyKind

CLASSIC = Capabilities(
    "activemq",
    poison_persistent=True,
    dead_letter_destination="queue://ActiveMQ.DLQ",
    individual_prefixes=("ActiveMQ.DLQ.Queue.", "ActiveMQ.DLQ.Topic."),
)
ARTEMIS = Capabilities("artemis", poison_on_request=True)
MEMORY = Capabilities("memory", poison_persistent=True, poison_non_persistent=True)
NAMES = st.lists(
    st.text("abx*", min_size=1, max_size=2).filter(lambda part: "*" not in part), min_size=1, max_size=3
)
PATTERNS = st.lists(st.sampled_from(["a", "b", "x", "*"]), min_size=1, max_size=3)
AFFIXES = st.sampled_from([None, "a", "a.", "b.x.", "x-"])


class Came(Delivery):
    """Delivery from a destination."""

    __slots__ = ("_destination", "_kind", "_persistent")

    def __init__(self, destination: str, *, persistent: bool = True, kind: BodyKind = "bytes") -> None:
        super().__init__(1, 1, b"body")
        self._destination, self._persistent, self._kind = destination, persistent, kind

    @property
    def destination(self) -> str:
        return self._destination

    @property
    def persistent(self) -> bool:
        return self._persistent

    @property
    def body_kind(self) -> BodyKind:
        return self._kind


def taken(
    letters: DeadLetterRouting, destination: str, able: Capabilities = CLASSIC, **options: object
) -> str:
    """Return the outcome of a poison message: the destination of its copy, or the name of another command."""
    record = Record(1)
    record.cause = Cause("no")
    for name in ("cause", "exhausted"):
        if name in options:
            setattr(record, name, options.pop(name))
    delivery = Came(destination, **options)  # type: ignore[arg-type]
    command = letters.command(delivery, record, able, 0.0, 0.0)
    return command.copy.destination if isinstance(command, Forward) else type(command).__name__


@pytest.mark.parametrize(
    ("strategy", "source", "subscriber", "able", "expected"),
    [
        ({}, "queue://orders", None, CLASSIC, "queue://ActiveMQ.DLQ.Queue.orders"),
        ({}, "topic://prices.eu", None, CLASSIC, "queue://ActiveMQ.DLQ.Topic.prices.eu"),
        ({}, "queue://orders", None, ARTEMIS, "queue://DLQ.orders"),
        ({}, "topic://prices", None, ARTEMIS, "queue://DLQ.prices"),
        ({"queue_prefix": "DLQ.", "queue_suffix": ".dead"}, "queue://orders", None, CLASSIC, "queue://DLQ.orders.dead"),
        ({"topic_prefix": "T.", "topic_suffix": ".dead"}, "topic://a", None, ARTEMIS, "queue://T.a.dead"),
        ({"use_queue_for_queue_messages": False}, "queue://orders", None, ARTEMIS, "topic://DLQ.orders"),
        ({"use_queue_for_topic_messages": False}, "topic://a", None, ARTEMIS, "topic://DLQ.a"),
        ({"destination_per_durable_subscriber": True, "topic_suffix": "!"}, "topic://a", "c:s", CLASSIC, "queue://ActiveMQ.DLQ.Topic.a.c:s!"),
        ({"destination_per_durable_subscriber": True}, "topic://a", None, CLASSIC, "queue://ActiveMQ.DLQ.Topic.a"),
        ({}, "topic://a", "c:s", CLASSIC, "queue://ActiveMQ.DLQ.Topic.a"),
    ],
)  # fmt: skip
def test_individual_names(
    strategy: dict[str, Any], source: str, subscriber: str | None, able: Capabilities, expected: str
) -> None:
    """A copy goes to prefix, name, subscription, suffix, as Classic makes them, whatever the broker does itself."""
    letters = routed(source, subscriber, strategy="individual", **strategy)
    assert letters.places(able) == (expected,)
    assert taken(letters, source, able) == expected
    parent = replace(letters, source=Destination.parse(source.partition("://")[0] + "://*"))
    assert parent.places(able) == ()
    if "." not in source.partition("://")[2]:
        assert taken(parent, source, able) == expected, (
            "behind a wildcard the message's own destination counts"
        )


def test_the_consumed_queue_names_the_dead_letters() -> None:
    """If a message was sent to another address than its queue, the queue names its dead letters, as on Classic."""
    letters = routed("Consumer.A.VT.x", strategy="individual")
    assert taken(letters, "topic://VT.x", ARTEMIS) == "queue://DLQ.Consumer.A.VT.x"


def test_a_body_that_did_not_come_is_left_to_the_broker() -> None:
    """A message that cannot be copied is poisoned natively where that keeps it; elsewhere it is set aside."""
    letters = routed("orders", strategy="individual")
    assert taken(letters, "queue://orders", CLASSIC, kind="partial") == "PoisonAck"
    command = letters.command(Came("queue://orders", kind="partial"), Record(1), ARTEMIS, 0.0, 0.0)
    assert isinstance(command, SetAside)
    assert "queue://DLQ.orders" in str(command.error)


def test_an_expiration_needs_a_copy() -> None:
    """A dead letter with an expiration is a copy: the broker's own poison acknowledgement cannot set one."""
    assert taken(DeadLetterRouting(), "queue://a") == "PoisonAck"
    assert taken(routed(expiration=60.0), "queue://a") == "queue://ActiveMQ.DLQ"
    assert routed(expiration=60.0).places(MEMORY) == (MEMORY.dead_letter_destination,)
    assert DeadLetterRouting().places(MEMORY) == ()


def test_discarding() -> None:
    """Dead letters are dropped: all, those that a pattern matches, or those of temporary destinations."""
    everything: dict[str, Any] = {}
    only, temporary = {"discard": r"LOG\..* prices"}, {"drop_temporary_queues": True}
    vectors: list[tuple[dict[str, Any], str, str]] = [
        (everything, "queue://orders", "Accept"), (everything, "temp-topic://t", "Accept"),
        (only, "queue://LOG.a", "Accept"), (only, "topic://prices", "Accept"), (only, "queue://orders", "PoisonAck"),
        (only, "temp-queue://q", "PoisonAck"), (temporary, "temp-queue://q", "Accept"),
        (temporary, "temp-topic://t", "PoisonAck"), (temporary, "queue://orders", "PoisonAck"),
        ({**only, "drop_temporary_topics": True}, "temp-topic://t", "Accept"),
    ]  # fmt: skip
    for strategy, source, expected in vectors:
        letters = routed(source, strategy="discarding", **strategy)
        assert taken(letters, source) == expected, (strategy, source)
        assert bool(letters.places(ARTEMIS)) is (strategy is not everything)


def test_dropped_for_want_of_redeliveries_or_of_a_policy() -> None:
    """`send_exhausted` drops messages with used-up redeliveries, `policies` those without an entry; no expired ones."""
    exhausted = DeadLetterRouting(send_exhausted=False)
    policies = RedeliveryPolicyMap({"orders": RedeliveryPolicy()})
    unserved = DeadLetterRouting(policies=policies)
    vectors: list[tuple[DeadLetterRouting, str, dict[str, Any], str]] = [
        (exhausted, "queue://a", {"exhausted": True}, "Accept"), (exhausted, "queue://a", {}, "PoisonAck"),
        (exhausted, "queue://a", {"cause": EXPIRED, "exhausted": True}, "PoisonAck"),
        (unserved, "queue://a", {}, "Accept"), (unserved, "queue://orders", {}, "PoisonAck"),
        (unserved, "topic://orders", {}, "Accept"), (unserved, "queue://a", {"cause": EXPIRED}, "PoisonAck"),
        (routed(process_expired=False), "queue://a", {"cause": EXPIRED}, "Accept"),
        (routed(process_non_persistent=False), "queue://a", {"persistent": False}, "Accept"),
    ]  # fmt: skip
    for letters, source, options, expected in vectors:
        assert taken(letters, source, **options) == expected, (letters, source, options)


def commands(bench: Bench, *, poisoned: bool) -> list[Command]:
    delivery = bench.run(Letter(0))
    return bench.feed(Poisoned(delivery, CAUSE) if poisoned else Failed(delivery, CAUSE))


def test_the_engine_tells_used_up_from_poisoned() -> None:
    """A failure above the maximum is dropped and reported; a message that the handler poisons is dead-lettered."""
    once = RedeliveryPolicy(maximum_redeliveries=0)
    letters = DeadLetterRouting(send_exhausted=False)
    bench = Bench(policy=once, dead_letters=letters)
    accept, dropped = commands(bench, poisoned=False)
    assert isinstance(accept, Accept)
    assert isinstance(dropped, Dropped)
    assert (dropped.cause, bench.engine.state.counts.discarded, bench.engine.state.counts.poisoned) == (
        CAUSE,
        1,
        0,
    )
    assert isinstance(commands(Bench(policy=once, dead_letters=letters), poisoned=True)[0], PoisonAck)


def test_the_verdict_outlives_the_connection() -> None:
    """A message that was to be dropped when the connection was lost is dropped at its redelivery."""
    bench = Bench(
        policy=RedeliveryPolicy(maximum_redeliveries=0), dead_letters=DeadLetterRouting(send_exhausted=False)
    )
    delivery = bench.run(Letter(0))
    bench.lose()
    bench.connect()
    assert bench.feed(Failed(delivery, CAUSE)) == []
    bench.arrive(Letter(0))
    assert [type(command) for command in bench.commands] == [Accept, Dropped]


@given(PATTERNS, st.booleans(), NAMES, AFFIXES, AFFIXES, st.booleans())
def test_no_dead_letter_comes_back_to_its_consumer(
    pattern: list[str], rest: bool, name: list[str], prefix: str | None, suffix: str | None, queue: bool
) -> None:
    """A copy goes to a destination that the consumer's pattern does not match, or the consumer stops."""
    source = Destination("queue", ".".join([*pattern, ">"] if rest else pattern))
    own = Destination("queue", ".".join(name))
    if not covers(source, own):
        return
    if not prefix and not suffix:
        prefix = None
    strategy = DeadLetterStrategy(
        strategy="individual",
        queue_prefix=prefix,
        queue_suffix=suffix or "",
        use_queue_for_queue_messages=queue,
    )
    letters = DeadLetterRouting(DeadLetterMap(default=strategy), source=source)
    taken_to = taken(letters, str(own), ARTEMIS)
    assert taken_to == "Stop" or not covers(source, Destination.parse(taken_to))
    found = strategy.returns_to(source, ARTEMIS, None)
    assert found is None or covers(source, Destination.parse(found))

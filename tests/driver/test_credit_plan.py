"""Credit of a new consumer: `auto`, unless a number is given, or no other consumer could use the messages."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from tests.eventually import eventually

import redelivery
from redelivery.core.capabilities import Capabilities
from redelivery.core.destination import Destination
from redelivery.core.dispatch_gate import Rate
from redelivery.driver.consumer.plan import credit_of
from redelivery.uri.parser import parse_uri

if TYPE_CHECKING:
    from redelivery.driver.arguments import ConsumerOptions
    from redelivery.testing import MemoryBroker

FLOW, WINDOW, FIXED = Capabilities("f", flow=True), Capabilities("w", grows=True), Capabilities("n")
NOTHING: ConsumerOptions = {}


def credits_of(
    query: str = "",
    destination: str = "queue://orders",
    able: Capabilities = FLOW,
    options: ConsumerOptions = NOTHING,
    workers: int | None = 1,
    rate: Rate | None = None,
) -> tuple[int, int, bool]:
    """Return the first and the largest credit, and True if it grows."""
    settings = parse_uri(f"stomp://h{query}")
    parsed = Destination.parse(destination)
    plan = credit_of(parsed, options, settings, able, rate=rate, workers=workers)
    return plan.first, plan.most, plan.pace is not None


@pytest.mark.parametrize("able", [FLOW, WINDOW])
def test_auto_begins_with_two_for_each_worker_and_two_more(able: Capabilities) -> None:
    """`auto` begins with two for each worker and two more, or with 16 for a consumer that is pulled."""
    assert [credits_of(able=able, workers=many) for many in (1, 2, 8, 0)] == [
        (4, 1000, True),
        (6, 1000, True),
        (18, 1000, True),
        (16, 1000, True),
    ]


def test_with_more_workers_than_it_may_take_nothing_grows() -> None:
    """`auto` does not begin above the maximum."""
    assert credits_of(workers=500) == (1000, 1000, False)


@pytest.mark.parametrize(
    ("query", "options", "expected"),
    [
        ("?redelivery.credit=5", NOTHING, 5),
        ("?jms.prefetchPolicy.queuePrefetch=1000", NOTHING, 1000),
        ("?jms.prefetchPolicy.all=7", NOTHING, 7),
        ("", {"credit": 3}, 3),
        ("?redelivery.credit=5", {"credit": 3}, 3),
    ],
)
def test_a_number_is_taken_as_it_is(query: str, options: ConsumerOptions, expected: int) -> None:
    """A given number is the credit; a prefetch of a Java URI counts."""
    assert credits_of(query, options=options) == (expected, expected, False)


@pytest.mark.parametrize("destination", ["topic://news", "temp-queue://answers", "native:///queue/a"])
def test_it_does_not_grow_where_no_other_consumer_waits(destination: str) -> None:
    """The credit of topics and temporary queues does not grow: no other consumer waits for their messages."""
    assert credits_of(destination=destination) == (1000, 1000, False)


@pytest.mark.parametrize("ordering", ["blocking", "per_group"])
def test_where_an_order_is_kept_a_window_is_of_one_size(ordering: str) -> None:
    """Over STOMP an ordered consumer has a fixed window; a credit that flows may grow."""
    query = f"?redelivery.ordering={ordering}"
    assert credits_of(query, able=WINDOW) == (1000, 1000, False)
    assert credits_of(query, able=FLOW) == (4, 1000, True)


def test_a_window_that_cannot_grow_is_of_one_size() -> None:
    """A window that cannot grow is fixed, and so is one of a session, or of Spark, which names no workers."""
    assert credits_of(able=FIXED) == (1000, 1000, False)
    assert credits_of(workers=None) == (1000, 1000, False)


def test_a_limit_of_rate_bounds_it() -> None:
    """A rate limit bounds the credit to a minute's messages."""
    assert credits_of(rate=Rate(1.0)) == (4, 60, True)


@pytest.mark.parametrize(("workers", "first"), [(1, 4), (4, 10)])
def test_a_listener_asks_for_its_first_credit(
    redelivery_broker: MemoryBroker, workers: int, first: int
) -> None:
    """A listener asks for its first credit only: the broker keeps all other messages for other processes."""
    go_on = threading.Event()
    for number in range(30):
        redelivery_broker.send("orders", str(number))
    with redelivery.connect(redelivery_broker.uri) as connection:
        connection.listen("orders", lambda _: go_on.wait(60), workers=workers)
        connection.start()
        [dispatcher] = connection._driver.dispatchers.values()
        eventually(lambda: dispatcher.engine.load.running == workers)
        assert dispatcher.engine.arrived == first
        assert (dispatcher.subscribe.window, dispatcher.subscribe.most) == (first, 1000)
        go_on.set()


def test_an_application_may_hold_many_messages(redelivery_broker: MemoryBroker) -> None:
    """A pulling application may have a thousand messages unsettled: the credit doubles with their number."""
    for number in range(1000):
        redelivery_broker.send("orders", str(number))
    with redelivery.connect(redelivery_broker.uri) as connection, connection.consumer("orders") as consumer:
        held = [consumer.receive(timeout=60) for _ in range(1000)]
        assert all(message is not None for message in held)


def test_a_session_has_a_fixed_credit(redelivery_broker: MemoryBroker) -> None:
    """A session has a fixed credit, because its messages are settled together."""
    with redelivery.connect(redelivery_broker.uri) as connection:
        connection.session("client").consumer("orders")
        [dispatcher] = connection._driver.dispatchers.values()
        assert (dispatcher.subscribe.window, dispatcher.subscribe.most) == (1000, 0)

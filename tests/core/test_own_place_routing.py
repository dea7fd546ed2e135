"""Copies to the broker's own dead-letter place: who follows it, with which marks, and a consumer of that place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.core.bench import CAUSE, Bench
from tests.core.model import Letter

from redelivery.core.capabilities import Capabilities
from redelivery.core.commands import Forward
from redelivery.core.dead_lettering.dead_letter_strategy import DeadLetterMap, DeadLetterStrategy
from redelivery.core.dead_lettering.routing import DeadLetterRouting
from redelivery.core.destination import Destination
from redelivery.core.events import Poisoned, QueueFound

TELLING = Capabilities("artemis", tells_dead_letters=True)
MARKS = (("_AMQ_ORIG_ADDRESS", "orders"),)
FOUND = replace(
    TELLING,
    dead_letter_destination="native://DLA::DLQ.orders",
    dead_letter_properties=MARKS,
    own_dead_letters="the dead-letter-address of orders",
)
ORDERS = Destination("queue", "orders")


def routing(source: Destination | None = ORDERS, **strategy: Any) -> DeadLetterRouting:
    """Routing of a consumer with one strategy."""
    default = DeadLetterStrategy(**strategy)
    return DeadLetterRouting(strategies=DeadLetterMap(default=default), source=source)


@pytest.mark.parametrize(
    "source",
    [None, Destination("queue", "orders.>"), Destination("queue", "a,b"), Destination("temp-queue", "reply")],
    ids=str,
)
def test_who_does_not_follow_the_broker(source: Destination | None) -> None:
    """Without one lasting queue or topic there are no settings to ask for: the usual place is checked instead."""
    assert not routing(source).follows_broker(TELLING)
    assert routing(source).places(TELLING) == ("queue://DLQ",)


@pytest.mark.parametrize(
    "strategy",
    [{"destination": "mine"}, {"strategy": "individual"}, {"dead_letter": "discard"}, {"dead_letter": "ack"}],
    ids=str,
)
def test_an_option_is_before_the_broker(strategy: dict[str, Any]) -> None:
    """A place, a strategy or a way that an option names is kept."""
    assert not routing(**strategy).follows_broker(replace(TELLING, poison_on_request=True))
    assert not replace(routing(), chosen="queue://mine").follows_broker(TELLING)


def test_who_follows_the_broker_checks_no_usual_place() -> None:
    """A check of the usual place would make that queue; places for exceptions are checked all the same."""
    assert routing().follows_broker(TELLING)
    assert not routing().follows_broker(Capabilities("artemis"))
    assert replace(routing(), also=("queue://invalid",)).places(TELLING) == ("queue://invalid",)


@pytest.mark.parametrize(("chosen", "marks"), [(None, MARKS), ("queue://mine", ())])
def test_a_copy_to_the_brokers_place_has_its_marks(
    chosen: str | None, marks: tuple[tuple[str, str], ...]
) -> None:
    """The copy has the property that the queue's filter wants, and a copy to another place has not."""
    bench = Bench(able=TELLING, dead_letters=replace(routing(), chosen=chosen))
    bench.feed(QueueFound(1, FOUND))
    (command,) = bench.feed(Poisoned(bench.run(Letter(1)), CAUSE))
    assert isinstance(command, Forward)
    assert (command.copy.destination, command.marks) == (chosen or FOUND.dead_letter_destination, marks)


@pytest.mark.parametrize(
    ("source", "place", "same"),
    [
        ("native://DLQ::DLQ", "queue://DLQ", True),
        ("queue://orders", "native://DLA::orders", True),
        ("native://DLA::a", "native://DLA::b", False),
        ("native://DLA::DLQ.orders", "queue://DLA", False),
        ("native://DLA::DLQ.orders", "native://DLA", True),
        ("native://DLA::DLQ.orders", "topic://DLA", True),
    ],
)
def test_a_queue_that_is_named_with_its_address(source: str, place: str, same: bool) -> None:
    """A queue of Artemis has one name in the broker, with its address before it or not."""
    assert routing(Destination.parse(source)).consumes(place) is same

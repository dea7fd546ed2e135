"""Circles of dead letters through the broker's own places, which are known only once the broker was asked."""

from __future__ import annotations

from dataclasses import replace

import pytest

from redelivery import ConfigurationError
from redelivery.core.capabilities import Capabilities
from redelivery.core.dead_lettering.circles import Circling, refuse_circle
from redelivery.core.dead_lettering.dead_letter_strategy import DeadLetterMap, DeadLetterStrategy
from redelivery.core.dead_lettering.routing import DeadLetterRouting
from redelivery.core.destination import Destination

ASKS = Capabilities("artemis", tells_dead_letters=True)
TOLD = replace(
    ASKS, dead_letter_destination="native://DLA::q", own_dead_letters="the dead-letter-address DLA"
)
BACK = Circling(DeadLetterRouting(chosen="queue://a", source=Destination.parse("native://DLA::q")), ASKS)
OWN = DeadLetterRouting(source=Destination.parse("a"))


def test_the_brokers_own_place_is_a_step_once_it_is_known() -> None:
    """Before the broker has answered, nothing is known against a consumer; its answer can close a circle."""
    refuse_circle(Circling(OWN, ASKS, told=False), [BACK])
    with pytest.raises(
        ConfigurationError, match=r"queue://a to native://DLA::q \(the dead-letter-address DLA\)"
    ):
        refuse_circle(Circling(OWN, TOLD), [BACK])


def test_names_that_grow_end_the_search() -> None:
    """Two patterns whose places lead to each other under ever longer names: the search comes to an end."""
    strategies = DeadLetterMap(
        {
            "b.>": DeadLetterStrategy(strategy="individual", queue_prefix="c."),
            "c.>": DeadLetterStrategy(strategy="individual", queue_prefix="b."),
        }
    )
    start = DeadLetterRouting(strategies, chosen="queue://b.x", source=Destination.parse("a"))
    refuse_circle(Circling(start, Capabilities("any")), [])

"""Dead-letter strategies by destination: look-up, values that are refused, and which one a consumer can need."""

from __future__ import annotations

import pickle
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.test_strategies import taken

from redelivery import ConfigurationError, DeadLetterMap, DeadLetterStrategy
from redelivery.core.capabilities import Capabilities
from redelivery.core.dead_lettering.routing import DeadLetterRouting
from redelivery.core.delivery import Cause
from redelivery.core.destination import Destination
from redelivery.core.policy.wildcards import covers, includes, overlap

ABLE = Capabilities("any", dead_letter_destination="queue://DLQ")
WORDS = st.lists(st.sampled_from(["a", "b", "*"]), min_size=1, max_size=3)
NAMES = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4)


def to(place: str) -> DeadLetterStrategy:
    return DeadLetterStrategy(destination=place)


def test_the_nearest_pattern_serves() -> None:
    """Precedence is that of a policy map: exact, then more literal; each kind is a tree of its own."""
    places = DeadLetterMap(
        {"orders.>": to("o"), "orders.eu": to("eu"), "topic://>": to("t"), "native://x": to("n")},
        default=to("d"),
    )
    expected = {
        "orders.eu": "eu", "orders.us.x": "o", "orders": "o", "bills": "d", "topic://orders": "t", "native://x": "n",
    }  # fmt: skip
    for name, place in expected.items():
        assert places.strategy_for(name).destination == f"queue://{place}", name
    assert places.pattern_for("orders.us") == "queue://orders.>"
    assert places.pattern_for("bills") is None
    assert (places.has_default, DeadLetterMap().has_default) == (True, False)
    assert pickle.loads(pickle.dumps(places)) == places != DeadLetterMap({"orders.>": to("o")})
    assert repr(DeadLetterMap({"a": to("b")})) == (
        "DeadLetterMap({'queue://a': DeadLetterStrategy(destination='queue://b')}, default=DeadLetterStrategy())"
    )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"destination": "a.>"}, "destination must be one queue, topic or native address"),
        ({"destination": "a,b"}, "destination must be one"),
        ({"destination": 3}, "destination: a destination must be text"),
        ({"dead_letter": "keep"}, "dead_letter must be one of auto, ack, forward, discard"),
        ({"strategy": "own"}, "strategy must be one of shared, individual, discarding"),
        ({"expiration": -1}, "expiration must be a number of seconds of 0 or more"),
        ({"process_expired": 1}, "process_expired must be True or False"),
        ({"queue_prefix": "D."}, "queue_prefix needs strategy=individual, and it is shared"),
        ({"strategy": "individual", "queue_prefix": ""}, "queue_prefix is empty, and there is no queue_suffix"),
        ({"strategy": "individual", "queue_prefix": b"D"}, "queue_prefix must be text"),
        ({"strategy": "individual", "destination": "d"}, "destination contradicts strategy=individual"),
        ({"strategy": "individual", "dead_letter": "ack"}, "strategy=individual contradicts dead_letter=ack"),
        ({"strategy": "discarding", "destination": "d"}, "is for forwarded copies, and strategy=discarding makes"),
        ({"strategy": "discarding", "discard": "("}, "discard: .*regular expression"),
        ({"dead_letter": "discard", "expiration": 5}, "expiration is for forwarded copies"),
    ],
)  # fmt: skip
def test_refused_values(values: dict[str, Any], message: str) -> None:
    """A wrong or contradictory value is one sentence that names the argument."""
    with pytest.raises(ConfigurationError, match=message) as caught:
        DeadLetterStrategy(**values)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"a.>.b": to("d")}, "the pattern queue://a.>.b: .* > only at the end"),
        ({"a": "d"}, "the dead-letter strategy for queue://a must be a DeadLetterStrategy, not 'd'"),
        ({"": to("d")}, "has no name"),
        (["a"], r"keys of a mapping, as in DeadLetterMap\(.*, not \['a'\]"),
        ([], "keys of a mapping"),
        (to("d"), "keys of a mapping, as in DeadLetterMap"),
    ],
)
def test_refused_maps(mapping: Any, message: str) -> None:
    """A map names the entry that it cannot have."""
    with pytest.raises(ConfigurationError, match=message):
        DeadLetterMap(mapping)


def test_a_lifetime_may_be_a_timedelta() -> None:
    """Equal lifetimes are equal strategies, however they are written."""
    assert DeadLetterStrategy(expiration=timedelta(seconds=2)) == DeadLetterStrategy(expiration=2)


@given(WORDS, st.booleans(), WORDS, st.booleans(), NAMES)
def test_patterns_that_share_a_name_overlap(
    one: list[str], one_tail: bool, other: list[str], other_tail: bool, name: list[str]
) -> None:
    """If a name is covered by two patterns, they overlap; without wildcards they do only if they are equal."""
    left = Destination("queue", ".".join([*one, ">"] if one_tail else one))
    right = Destination("queue", ".".join([*other, ">"] if other_tail else other))
    own = Destination("queue", ".".join(name))
    if covers(left, own) and covers(right, own):
        assert overlap(left, right)
        assert overlap(right, left)
    assert overlap(left, own) == covers(left, own)
    if includes(left, right) and covers(right, own):
        assert covers(left, own)
    assert not overlap(left, replace(right, kind="topic"))


def test_which_places_are_known_before_the_messages() -> None:
    """One queue has one place; a wildcard those of all patterns with a name in common, and the default if it counts."""
    places = DeadLetterMap({"orders.eu": to("eu"), "orders.>": to("o"), "bills.>": to("b")}, default=to("d"))

    def of(source: str, **more: Any) -> tuple[str, ...]:
        return DeadLetterRouting(places, source=Destination.parse(source), **more).places(ABLE)

    assert of("orders.eu") == ("queue://eu",)
    assert of("bills") == ("queue://b",)
    assert of("orders.*") == ("queue://eu", "queue://o")
    assert of("*.eu") == ("queue://eu", "queue://o", "queue://b", "queue://d")
    assert of("orders.*", chosen="queue://c") == ("queue://c",)
    assert of("orders.eu", also=("queue://x", "queue://eu")) == ("queue://eu", "queue://x")


def test_the_order_of_the_places() -> None:
    """An exception's place comes before the consumer's, that before the map's, that before the default."""
    places = DeadLetterMap({"orders.>": to("o")}, default=to("d"))
    source = Destination.parse("orders.>")
    mapped = DeadLetterRouting(places, source=source)
    assert taken(mapped, "queue://orders.eu", ABLE) == "queue://o"
    assert taken(replace(mapped, source=Destination.parse("bills.*")), "queue://bills.a", ABLE) == "queue://d"
    assert taken(DeadLetterRouting(source=source), "queue://orders", ABLE) == "queue://DLQ"
    several = DeadLetterRouting(DeadLetterMap({"orders.eu": to("eu"), "orders.*": to("o")}), source=source)
    for name, place in (("eu", "eu"), ("us", "o")):
        assert taken(several, f"queue://orders.{name}", ABLE) == f"queue://{place}", (
            "of the message's own destination"
        )
    chosen = replace(mapped, chosen="queue://c")
    assert taken(chosen, "queue://orders.eu", ABLE) == "queue://c"
    by_exception = Cause.of(KeyError("k"), "queue://x")
    assert taken(chosen, "queue://orders.eu", ABLE, cause=by_exception) == "queue://x"


@pytest.mark.parametrize(
    "values", [{"dead_letter": "discard"}, {"strategy": "discarding"}, {"dead_letter": "ack"}]
)
def test_a_place_that_was_chosen_keeps_what_the_default_drops(values: dict[str, Any]) -> None:
    """A consumer's or an exception's own place is a copy, whatever the strategy of the destination says."""
    able = replace(ABLE, poison_persistent=True)
    mapped = DeadLetterRouting(
        DeadLetterMap({"a": DeadLetterStrategy(**values)}), source=Destination.parse("a")
    )
    assert taken(mapped, "queue://a", able) in ("Accept", "PoisonAck")
    assert taken(replace(mapped, chosen="queue://c"), "queue://a", able) == "queue://c"
    assert taken(mapped, "queue://a", able, cause=Cause("no", place="queue://x")) == "queue://x"

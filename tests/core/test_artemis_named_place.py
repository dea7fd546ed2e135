"""Named places that Artemis would drop dead letters at: the question, and what its queues' properties mean."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.core.test_artemis_own_place import queue

from redelivery.core.dead_lettering.artemis_places import alone_at, dropped_at, elsewhere, queues_at
from redelivery.core.destination import Destination
from redelivery.errors import AdapterError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MULTICAST = {"routingType": "MULTICAST"}


def judged(place: str, *there: dict[str, str], origin: str = "orders") -> str:
    """Return why a place with these queues drops dead letters."""
    destination = Destination.parse(place)
    return dropped_at(destination, listed(destination, *there), origin)


def listed(destination: Destination, *there: dict[str, str]) -> Sequence[Mapping[str, str]]:
    """Return what a broker with these queues lists for a place."""
    asking = queues_at(destination)
    answers: list[str] = []
    for question in next(asking):
        wanted = json.loads(question.arguments[0])
        found = [each for each in there if each[wanted["field"].lower()] == wanted["value"]]
        answers.append(json.dumps({"data": found, "count": len(found)}))
    with pytest.raises(StopIteration) as end:
        asking.send(answers)
    found_there: Sequence[Mapping[str, str]] = end.value.value
    return found_there


@pytest.mark.parametrize(
    ("place", "there"),
    [
        ("native://A::q", queue("q", "A")),
        ("native://A::q", queue("q", "A", **MULTICAST)),
        ("native://A::q", queue("q", "A", filter="_AMQ_ORIG_ADDRESS = 'orders'")),
        ("native://A", queue("q", "A", **MULTICAST)),
        ("queue://A", queue("q", "A")),
        ("queue://A::q", queue("q", "A")),
    ],
)
def test_a_queue_that_takes_each_letter(place: str, there: dict[str, str]) -> None:
    """A queue without a filter, or with that of the letters' own address, keeps them; beside it others may not."""
    assert judged(place, there) == ""
    assert judged(place, queue("other", "A", filter="x = 1"), there) == ""


@pytest.mark.parametrize("place", ["native://A::q", "queue://A::q", "native://A", "queue://A"])
def test_a_queue_with_a_filter(place: str) -> None:
    """A filter, also one for the letters of another address, is named with its queue; it is not evaluated."""
    why = judged(place, queue("q", "A", filter="region = 'eu'"))
    assert why.startswith(
        "A::q takes only messages with region = 'eu': Artemis would confirm dead letters and"
    )
    other = queue("q", "A", filter="_AMQ_ORIG_ADDRESS = 'orders'")
    assert "takes only messages with _AMQ_ORIG" in judged(place, other, origin="others")


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"enabled": "false"}, "is disabled"),
        ({"purgeOnNoConsumers": "true"}, "drops its messages while it has no consumer"),
        ({"ringSize": "5"}, "keeps the last 5 messages only"),
        ({"lastValueKey": "key"}, "keeps the last message of each key only"),
        ({"durable": "false"}, "does not outlive the broker"),
        ({"temporary": "true"}, "does not outlive the broker"),
    ],
)
def test_a_queue_that_loses_what_it_takes(more: dict[str, str], why: str) -> None:
    """It is refused by its name; by its address, beside a good queue, if it takes turns with that."""
    losing, good = queue("q", "A", **more), queue("good", "A")
    assert f"A::q {why}" in judged("native://A::q", losing)
    assert f"A::q {why}" in judged("queue://A", losing, good)
    assert judged("queue://A", {**losing, **MULTICAST}, good) == ""
    assert judged("native://A::good", losing, good) == ""
    assert judged("queue://A", {**good, "ringSize": "-1", "lastValueKey": "", "enabled": "true"}) == ""


def test_a_queue_of_another_address() -> None:
    """Artemis attaches a link to it by a wrong address, confirms, and drops."""
    assert "B::q has another address" in judged("native://A::q", queue("q", "B"))


@pytest.mark.parametrize("more", [{}, MULTICAST], ids=["anycast", "multicast"])
def test_the_name_of_a_queue_of_another_address(more: dict[str, str]) -> None:
    """Artemis sends to the address of that name, which has no queue, and confirms: its address is named beside it."""
    there = queue("q", "B", **more)
    assert judged("queue://q", there) == (
        "the queue q belongs to the address B: Artemis would confirm dead letters and drop them; name native://B::q"
    )
    assert elsewhere(Destination.parse("queue://q"), listed(Destination.parse("queue://q"), there)) == there
    own = queue("other", "q")
    assert judged("queue://q", there, own) == ""
    assert (
        elsewhere(Destination.parse("queue://q"), listed(Destination.parse("queue://q"), there, own)) is None
    )


@pytest.mark.parametrize(
    ("place", "there", "alone"),
    [
        ("queue://A", [queue("A")], ""),
        ("queue://A", [queue("A"), queue("audit", "A", **MULTICAST)], "native://A::A"),
        ("queue://A", [queue("A"), queue("b", "A")], "native://A::A"),
        ("queue://A", [queue("a", "A"), queue("b", "A")], ""),
        ("queue://A", [], ""),
        ("queue://A::q", [queue("q", "A", **MULTICAST)], "native://A::q"),
        ("queue://A::q", [], ""),
        ("native://A", [queue("A"), queue("b", "A")], ""),
        ("native://A::q", [queue("q", "A"), queue("b", "A")], ""),
        ("topic://A", [queue("a", "A", **MULTICAST), queue("A")], ""),
    ],
)
def test_the_name_that_reaches_one_queue(place: str, there: list[dict[str, str]], alone: str) -> None:
    """A queue whose address has more is reached by both names; no queue, or one that is not there, is not."""
    destination = Destination.parse(place)
    assert alone_at(destination, listed(destination, *there)) == alone


def test_a_place_without_a_queue() -> None:
    """Artemis makes the queue of a name, or refuses the link; of a bare address it makes none."""
    assert judged("native://A::q") == judged("queue://A") == ""
    assert judged("native://A").startswith("the address A has no queue: Artemis would confirm")


@pytest.mark.parametrize("value", ["[]", "{}", '{"data": [{"name": "q"}]}', "no JSON", "null"])
def test_another_answer_than_expected(value: str) -> None:
    """An answer in another form is the error of a broker that does not answer."""
    asking = queues_at(Destination.parse("native://A::q"))
    next(asking)
    with pytest.raises(AdapterError, match="something else than expected"):
        asking.send([value])


def test_over_stomp_a_queue_needs_an_anycast_queue() -> None:
    """A message for `queue://q` is dropped over STOMP where its address has multicast queues only; not over AMQP."""
    place = Destination.parse("queue://q")
    beside = {"name": "other", "address": "q", "filter": "", "routingType": "MULTICAST"}
    assert "the address q has no anycast queue" in dropped_at(place, [beside], "orders", refused=False)
    assert dropped_at(place, [beside], "orders") == ""
    good = {**beside, "name": "q", "routingType": "ANYCAST"}
    assert dropped_at(place, [beside, good], "orders", refused=False) == ""

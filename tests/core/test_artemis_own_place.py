"""Where Artemis' own settings put a dead letter: the questions, and the place, for each way that they can be set."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from redelivery.core.dead_lettering.artemis_places import OwnPlace, own_place
from redelivery.core.destination import Destination
from redelivery.errors import AdapterError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redelivery.core.dead_lettering.artemis_places import Question

QUEUE = {
    "durable": "true",
    "temporary": "false",
    "filter": "",
    "routingType": "ANYCAST",
    "autoDelete": "false",
}


def queue(name: str, address: str | None = None, **more: str) -> dict[str, str]:
    """One queue in the broker's list."""
    return {**QUEUE, "name": name, "address": address or name, **more}


class Artemis:
    """Broker with these queues, and these settings for every address."""

    def __init__(self, queues: Sequence[dict[str, str]] = (), **settings: object) -> None:
        self.queues = queues
        self.settings = settings
        self.settings_of: list[str] = []
        self.made: list[dict[str, Any]] = []
        self.refuses = ""

    def find(self, destination: str) -> OwnPlace | None:
        """Answer all questions for a destination, and return its place."""
        asking = own_place(Destination.parse(destination))
        try:
            questions = next(asking)
            while True:
                if self.refuses in [each.operation for each in questions]:
                    questions = asking.throw(AdapterError("no right"))
                questions = asking.send([self.answer(each) for each in questions])
        except StopIteration as end:
            place: OwnPlace | None = end.value
            if place is not None and place.make is not None:
                self.answer(place.make)
            return place

    def answer(self, question: Question) -> str:
        """Answer as Artemis 2.40.0 does."""
        first = question.arguments[0]
        if question.operation == "getAddressSettingsAsJSON":
            self.settings_of.append(first)
            return json.dumps(self.settings)
        if question.operation == "createQueue":
            self.made.append(json.loads(first))
            assert question.arguments[1] is True, "another consumer may have made it meanwhile"
            return "{}"
        wanted = json.loads(first)
        assert (question.operation, wanted["operation"]) == ("listQueues", "EQUALS")
        data = [one for one in self.queues if one[wanted["field"].lower()] == wanted["value"]]
        return json.dumps({"data": data, "count": len(data)})


@pytest.mark.parametrize(
    ("queues", "place"),
    [
        ([queue("DLA"), queue("audit", "DLA", routingType="MULTICAST")], "native://DLA::DLA"),
        ([queue("DLA"), queue("other", "DLA")], "native://DLA::DLA"),
        ([queue("DLA"), queue("x", "DLA", filter="_AMQ_ORIG_ADDRESS = 'other'")], "queue://DLA"),
        ([queue("DLA"), queue("x", "DLA", filter="_AMQ_ORIG_ADDRESS = 'orders'")], "native://DLA::DLA"),
        ([queue("DLA", autoDelete="true")], "native://DLA::DLA"),
        ([queue("b", "DLA"), queue("a", "DLA")], "native://DLA::a"),
        ([queue("audit", "DLA", routingType="MULTICAST")], "native://DLA::audit"),
        ([queue("DLA", routingType="MULTICAST")], "native://DLA::DLA"),
        ([queue(each, "DLA", routingType="MULTICAST") for each in "ba"], "native://DLA::a"),
    ],
)
def test_a_dead_letter_address_is_reached_through_a_queue_that_keeps_all(
    queues: list[dict[str, str]], place: str
) -> None:
    """The place is one durable queue without a filter on that address, whose name reaches it in any case."""
    artemis = Artemis(queues, deadLetterAddress="DLA")
    assert artemis.find("orders") == OwnPlace(place, "orders", "the dead-letter-address of orders")
    assert artemis.made == []


def test_a_dead_letter_address_without_a_queue_gets_one() -> None:
    """The queue is made before the first copy: a message to an address without one is confirmed and dropped."""
    artemis = Artemis(deadLetterAddress="DLA")
    found = artemis.find("orders")
    assert found is not None
    assert found.destination == "queue://DLA"
    assert artemis.made == [{
        "name": "DLA", "address": "DLA", "routing-type": "ANYCAST", "durable": True, "auto-create-address": True,
        "auto-delete": False,
    }]  # fmt: skip


@pytest.mark.parametrize(
    "there",
    [
        queue("a", "DLA", temporary="true"),
        queue("b", "DLA", durable="false"),
        queue("DLQ.other", "DLA", routingType="MULTICAST", filter="_AMQ_ORIG_ADDRESS = 'other'"),
    ],
    ids=["temporary", "not durable", "filter"],
)
def test_queues_that_keep_no_letter_of_this_address(there: dict[str, str]) -> None:
    """Beside queues that would drop the letter, one for this address is made: the broker makes none for a message."""
    artemis = Artemis([there], deadLetterAddress="DLA")
    found = artemis.find("orders")
    assert found is not None
    assert (found.destination, found.problem) == ("native://DLA::DLQ.orders", "")
    assert [each["filter-string"] for each in artemis.made] == ["_AMQ_ORIG_ADDRESS = 'orders'"]


@pytest.mark.parametrize(
    "queues",
    [
        [queue("DLA", "elsewhere")],
        [queue("DLA", "elsewhere", routingType="MULTICAST")],
        [queue("x", "DLA", filter="x = 1"), queue("DLQ.orders", "elsewhere")],
    ],
)
def test_a_queue_that_cannot_be_made_is_a_problem(queues: list[dict[str, str]]) -> None:
    """Artemis calls a queue made that another address has: the place would have none, and drop what it is sent."""
    artemis = Artemis(queues, deadLetterAddress="DLA")
    found = artemis.find("orders")
    assert found is not None
    assert (artemis.made, "does not take the dead letters of orders" in found.problem) == ([], True)


def test_the_queue_of_one_address_is_made_as_the_broker_makes_it() -> None:
    """With `auto-create-dead-letter-resources` the queue of the address is made, with Artemis' filter, and stays."""
    artemis = Artemis(
        deadLetterAddress="DLA", autoCreateDeadLetterResources=True, deadLetterQueuePrefix="dead.",
        deadLetterQueueSuffix=".x",
    )  # fmt: skip
    found = artemis.find("orders")
    assert found is not None
    assert (found.destination, found.address) == ("native://DLA::dead.orders.x", "orders")
    assert artemis.made == [{
        "name": "dead.orders.x", "address": "DLA", "routing-type": "MULTICAST", "durable": True,
        "filter-string": "_AMQ_ORIG_ADDRESS = 'orders'", "auto-create-address": True, "auto-delete": False,
    }]  # fmt: skip


@pytest.mark.parametrize("filters", ["", "_AMQ_ORIG_ADDRESS = 'orders'"])
def test_a_queue_that_the_broker_has_made_is_used(filters: str) -> None:
    """A queue that is there is used as it is, if it takes these dead letters; the default prefix is `DLQ.`."""
    there = queue("DLQ.orders", "DLA", routingType="MULTICAST", filter=filters)
    artemis = Artemis([there], deadLetterAddress="DLA", autoCreateDeadLetterResources=True)
    found = artemis.find("orders")
    assert found is not None
    assert (found.destination, artemis.made) == ("native://DLA::DLQ.orders", [])


@pytest.mark.parametrize(
    "there",
    [queue("DLQ.orders", "elsewhere"), queue("DLQ.orders", "DLA", filter="_AMQ_ORIG_ADDRESS = 'other'")],
    ids=["elsewhere", "filter"],
)
def test_a_queue_that_would_drop_the_letters_is_no_place(there: dict[str, str]) -> None:
    """A queue of that name on another address, or with another filter, is a problem: it would get no letter."""
    artemis = Artemis([there], deadLetterAddress="DLA", autoCreateDeadLetterResources=True)
    found = artemis.find("orders")
    assert found is not None
    assert (found.make, "does not take the dead letters of orders" in found.problem) == (None, True)


@pytest.mark.parametrize(
    ("destination", "queues", "address"),
    [
        ("queue://orders", [], "orders"),
        ("queue://orders", [queue("orders", "shop")], "shop"),
        ("queue://orders", [queue("orders"), queue("other", "orders")], "orders"),
        ("topic://news", [queue("news", "shop")], "news"),
        ("native://shop::orders", [], "shop"),
        ("native://orders", [queue("orders", "shop")], "shop"),
    ],
)
def test_the_settings_are_those_of_the_address_of_the_queue(
    destination: str, queues: list[dict[str, str]], address: str
) -> None:
    """A queue can belong to an address with another name, whose settings count."""
    artemis = Artemis(queues, deadLetterAddress="DLA")
    found = artemis.find(destination)
    assert found is not None
    assert (artemis.settings_of[-1], found.address) == (address, address)


def test_an_older_broker_has_another_name_for_it() -> None:
    """Artemis 2.31.2 calls the setting `DLA`."""
    found = Artemis(DLA="old", autoCreateDeadLetterResources=False).find("orders")
    assert found is not None
    assert found.destination == "queue://old"


def test_without_a_dead_letter_address_the_broker_has_no_place() -> None:
    """Artemis drops poison messages of such a queue; the copy has the usual place, and nothing more is asked."""
    assert Artemis().find("orders") is None
    assert Artemis(deadLetterAddress="").find("orders") is None


def test_a_refusal_is_the_callers() -> None:
    """A refusal of any question ends the search with the broker's error."""
    for refused in ("listQueues", "getAddressSettingsAsJSON"):
        artemis = Artemis(deadLetterAddress="DLA", autoCreateDeadLetterResources=True)
        artemis.refuses = refused
        with pytest.raises(AdapterError, match="no right"):
            artemis.find("orders")


@pytest.mark.parametrize("told", ["no JSON", "[]", "{}", '{"data": [{}]}', 7])
def test_an_answer_that_is_none_is_a_refusal(told: object) -> None:
    """An answer in another form is an AdapterError, not a fault of the library."""
    asking = own_place(Destination.parse("orders"))
    next(asking)
    with pytest.raises(AdapterError, match="something else than expected"):
        asking.send([told, told])


@pytest.mark.parametrize(
    ("destination", "queues", "returns"),
    [
        ("queue://DLA", [], True),
        ("queue://DLA", [queue("DLA")], True),
        ("queue://a", [queue("a", "DLA")], True),
        ("native://DLA::a", [queue("a", "DLA", routingType="MULTICAST")], True),
        ("native://DLA::b", [queue(each, "DLA", routingType="MULTICAST") for each in "ab"], False),
        ("topic://DLA", [queue("a", "DLA", routingType="MULTICAST")], True),
        ("native://DLA::DLQ.orders", [queue("DLA"), queue("DLQ.orders", "DLA", filter="x = 'y'")], False),
        ("queue://orders", [queue("DLA")], False),
    ],
)
def test_a_consumer_that_would_get_its_own_letters(
    destination: str, queues: list[dict[str, str]], returns: bool
) -> None:
    """It is known by the queue, however the consumer names it; a topic by its address."""
    found = Artemis(queues, deadLetterAddress="DLA").find(destination)
    assert found is not None
    assert found.returns is returns


def test_a_name_that_no_destination_has_is_refused() -> None:
    """A dead-letter address with a line end in its name is a problem."""
    found = Artemis(deadLetterAddress="DLA\nx").find("orders")
    assert found is not None
    assert "control character" in found.problem


def test_a_quote_in_an_address_stays_within_the_filter() -> None:
    """An apostrophe of an address is doubled in the filter."""
    artemis = Artemis(deadLetterAddress="DLA", autoCreateDeadLetterResources=True)
    artemis.find("o'clock")
    assert artemis.made[0]["filter-string"] == "_AMQ_ORIG_ADDRESS = 'o''clock'"

"""Queues that Artemis lists before a consumer begins: named dead-letter places that drop, and selectors on queues."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest
from tests.amqp.peer import PATIENCE
from tests.amqp.test_own_places import NO_RETRY, Artemis, fail
from tests.eventually import eventually

import redelivery
from redelivery import Classifier
from redelivery.core.dead_lettering import artemis_management
from redelivery_amqp import artemis_node

if TYPE_CHECKING:
    from collections.abc import Iterator

PLACE = "native://mine::q"
QUEUE = {"name": "q", "address": "mine", "filter": "", "routingType": "MULTICAST"}
EU = "region = 'eu'"


class Queues(Artemis):
    """Artemis with the queue `mine::q`, and its filter."""

    def __init__(self) -> None:
        super().__init__()
        self.manages = self._answers
        # Of the queue; None: there is none.
        self.filter: str | None = EU

    def _answers(self, operation: str, arguments: list[Any]) -> object:
        if operation != "listQueues" or self.silent or '"q"' not in arguments[0]:
            return self._told(operation, arguments)
        self.asked.append(operation)
        found = [] if self.filter is None else [{**QUEUE, "filter": self.filter}]
        return json.dumps({"data": found, "count": len(found)})


@pytest.fixture
def peer() -> Iterator[Queues]:
    """Return such a broker."""
    with Queues() as broker:
        yield broker


@pytest.mark.parametrize("how", ["connection", "map", "consumer", "exception"])
def test_a_place_that_drops_dead_letters_is_refused(peer: Queues, how: str) -> None:
    """Wherever it is named, the error has place, queue, filter and the options, and no message is taken."""
    given = {
        "connection": f"&redelivery.deadLetterDestination={PLACE}",
        "map": f"&redelivery.deadLetterMap.orders.destination={PLACE}",
    }
    options: dict[str, Any] = {
        "consumer": {"dead_letter": PLACE},
        "exception": {"errors": Classifier().poison(KeyError, to=PLACE), "dead_letter": "other"},
    }
    with (
        redelivery.connect(f"{peer.uri}{given.get(how, '')}") as connection,
        pytest.raises(redelivery.AdapterError) as refused,
    ):
        connection.consumer("orders", **options.get(how, {}))
    assert (
        f"the dead-letter destination {PLACE} cannot be used: mine::q takes only messages with {EU}"
        in str(refused.value)
    )
    assert "redelivery.deadLetterDestination, deadLetterMap, dead_letter=, poison(to=), --to" in str(
        refused.value
    )
    assert peer.consumers == []


@pytest.mark.parametrize("how", ["connection", "map", "consumer", "exception"])
@pytest.mark.parametrize(
    "more", [[], [{**QUEUE, "name": "q.audit", "address": "q"}]], ids=["alone", "beside"]
)
def test_one_letter_at_an_address_with_more_queues(
    peer: Queues, how: str, more: list[dict[str, str]]
) -> None:
    """Wherever the place is named, the letter is sent to its queue by address and name, where the address has more."""
    there = [{**QUEUE, "address": "q", "routingType": "ANYCAST"}, *more]
    listed = json.dumps({"data": there, "count": len(there)})
    peer.manages = lambda operation, _: listed if operation == "listQueues" else "{}"
    sent: list[str] = []
    peer.taken = lambda _, link: sent.append(str(link.remote_target.address))
    given = {
        "connection": "&redelivery.deadLetterDestination=q",
        "map": "&redelivery.deadLetterMap.orders.destination=q",
    }
    options: dict[str, Any] = {
        "consumer": {"dead_letter": "q"},
        "exception": {"errors": Classifier().poison(ValueError, to="q"), "dead_letter": "other"},
    }
    with redelivery.connect(f"{peer.uri}{given.get(how, '')}", policies=NO_RETRY) as connection:
        connection.listen("orders", fail, **options.get(how, {}))
        connection.start()
        eventually(lambda: connection.report().poisoned == 1)
    assert sent == ["q::q" if more else "q"]


def test_a_place_is_asked_for_once(peer: Queues) -> None:
    """A place that is good is asked for once on a connection, after its link is there; on the next one again."""
    peer.filter = ""
    with redelivery.connect(peer.uri, policies=NO_RETRY) as connection:
        for name in ("a", "b"):
            connection.listen(name, fail, dead_letter=PLACE)
        connection.start()
        eventually(lambda: connection.report().poisoned == 2)
        assert (peer.asked, peer.targets) == (["listQueues"], ["mine::q", "activemq.management"])
        peer.cut()
        eventually(lambda: connection.report().poisoned == 4)
    assert peer.asked == ["listQueues"] * 2


def test_a_copy_waits_while_its_queue_drops_it(peer: Queues, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its queue has got a filter while the consumer ran: Artemis would confirm the copy and drop it."""
    monkeypatch.setattr(artemis_management, "FRESH", 0.0)
    monkeypatch.setattr("redelivery.core.pending_confirms.FIRST", 0.02)
    peer.filter = ""
    sent: list[str] = []
    peer.taken = lambda _, link: sent.append(str(link.remote_target.address))

    def handle(message: redelivery.Message) -> None:
        peer.filter = EU
        fail(message)

    with redelivery.connect(peer.uri, policies=NO_RETRY) as connection:
        connection.listen("orders", handle, dead_letter=PLACE)
        connection.start()
        eventually(lambda: connection.health().consumers[0].unconfirmed_cause is not None)
        assert f"takes only messages with {EU}" in str(connection.health().consumers[0].unconfirmed_cause)
        assert sent == []
        peer.filter = ""
        eventually(lambda: connection.report().poisoned == 1)
    assert sent == ["mine::q"]


def test_the_queue_of_the_dead_letters_own_address_is_good(peer: Queues) -> None:
    """The filter that Artemis gives such a queue takes the copies: they have that property."""
    peer.filter = "_AMQ_ORIG_ADDRESS = 'orders'"
    with redelivery.connect(peer.uri) as connection:
        with (
            connection.consumer("orders", dead_letter=PLACE),
            connection.consumer("native://orders::x", dead_letter=PLACE),
        ):
            pass
        with pytest.raises(redelivery.AdapterError, match="takes only messages with _AMQ_ORIG"):
            connection.consumer("others", dead_letter=PLACE)


def test_the_default_place_is_asked_for_too(peer: Queues) -> None:
    """DLQ is no place for a queue without a dead-letter address, if only other addresses' queues are there."""
    peer.address = ""

    def answers(operation: str, arguments: list[Any]) -> object:
        if '"DLQ"' in arguments[0]:
            other = {**QUEUE, "name": "DLQ.x", "address": "DLQ", "filter": "_AMQ_ORIG_ADDRESS = 'x'"}
            return json.dumps({"data": [other], "count": 1})
        return peer._told(operation, arguments)

    peer.manages = answers
    with (
        redelivery.connect(peer.uri) as connection,
        pytest.raises(redelivery.AdapterError, match=r"queue://DLQ cannot be used: DLQ::DLQ\.x takes"),
    ):
        connection.consumer("orders")


def test_a_topic_is_not_asked_for(peer: Queues) -> None:
    """A topic keeps what its subscribers keep."""
    with redelivery.connect(peer.uri) as connection, connection.consumer("orders", dead_letter="topic://t"):
        pass
    assert (peer.asked, peer.targets) == ([], ["t"])


@pytest.mark.parametrize("how", ["no link", "no question", "another answer"])
def test_without_the_right_there_is_one_warning(
    peer: Queues, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    """The place of a user who may not ask counts as good; that is said once, and nothing is asked again."""
    caplog.set_level(logging.WARNING)
    peer.manages = {"no link": None, "no question": lambda *_: None, "another answer": lambda *_: "[]"}[how]
    with redelivery.connect(peer.uri) as connection:
        for name in ("a", "b"):
            with connection.consumer(name, dead_letter=PLACE), connection.consumer(name, dead_letter="other"):
                pass
    (warning,) = [each.message for each in caplog.records]
    assert f"does not tell this user which queues {PLACE} has" in warning
    assert "Artemis confirms a dead letter that no queue there takes, and drops it" in warning
    assert peer.targets == ["mine::q", "activemq.management", "other"]


def test_without_an_answer_the_consumers_begin(peer: Queues, monkeypatch: pytest.MonkeyPatch) -> None:
    """A management that never answers delays the consumers of a connection once, and each of them begins."""
    monkeypatch.setattr(artemis_node, "LATE", 0.05)
    peer.silent = True
    with redelivery.connect(peer.uri) as connection:
        beginning = [
            connection._driver.subscribe(connection._dispatcher(name, {"dead_letter": PLACE}))
            for name in "abc"
        ]
        for each in beginning:
            each.result(PATIENCE)
        monkeypatch.setattr(artemis_node, "LATE", PATIENCE * 10)
        with connection.consumer("d", dead_letter="native://mine::x"):
            pass
    assert [address for _, address in peer.consumers] == ["a", "b", "c", "d"]


def test_a_connection_that_ends_during_the_question(peer: Queues) -> None:
    """The next connection asks again: the loss is neither a refusal nor a missing right."""
    peer.silent = True
    with redelivery.connect(peer.uri) as connection:
        beginning = connection._driver.subscribe(connection._dispatcher("orders", {"dead_letter": PLACE}))
        eventually(lambda: peer.asked == ["listQueues"])
        peer.silent = False
        peer.cut()
        with pytest.raises(redelivery.AdapterError, match="takes only messages"):
            beginning.result(PATIENCE)
    assert peer.consumers == []


RED = "colour = 'red'"


@pytest.mark.parametrize(
    ("name", "options", "queue", "capability"),
    [
        (PLACE, {"selector": RED}, EU, "queue"),
        (PLACE, {"selector": RED}, "", "queue"),
        (PLACE, {"selector": RED}, None, ""),
        (PLACE, {}, EU, ""),
        ("native://mine", {"selector": RED}, EU, ""),
        ("queue://mine::q", {"selector": RED}, EU, "queue"),
    ],
    ids=["another filter", "no filter", "missing", "no selector", "address", "queue"],
)
def test_a_selector_on_a_queue_with_its_address(
    peer: Queues, name: str, options: Any, queue: str | None, capability: str
) -> None:
    """It is attached as the consumer of a queue that is there: as a subscriber it would end the connection."""
    peer.filter = queue
    found = noted(peer)
    with (
        redelivery.connect(peer.uri) as connection,
        connection.consumer(name, dead_letter="topic://t", **options),
    ):
        pass
    assert found == [capability]


@pytest.mark.parametrize("how", ["no right", "silent"])
def test_a_selector_for_a_user_who_may_not_ask(
    peer: Queues, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Without an answer the queue counts as there."""
    monkeypatch.setattr(artemis_node, "LATE", 0.05)
    peer.silent = how == "silent"
    if not peer.silent:
        peer.manages = None
    found = noted(peer)
    with (
        redelivery.connect(peer.uri) as connection,
        connection.consumer(PLACE, selector=RED, dead_letter="topic://t"),
    ):
        pass
    assert found == ["queue"]


def noted(peer: Queues) -> list[str]:
    """Return a list in which the broker notes the capability of each consumer's source."""
    found: list[str] = []
    before = peer.attaches

    def attached(link: Any) -> bool:
        if link.is_sender and "management" not in str(link.remote_source.address):
            capabilities = link.remote_source.capabilities
            capabilities.rewind()
            found.append(str(capabilities.get_object()) if capabilities.next() else "")
        return before(link)

    peer.attaches = attached
    return found

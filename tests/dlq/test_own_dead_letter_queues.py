"""Dead letters by the broker's own settings: the tools without a queue find them, and remove none of others'."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.dlq.test_matching_queues import ARTEMIS, Port, row

import redelivery
from redelivery.core.dead_lettering.dead_letter_strategy import DeadLetterMap, DeadLetterStrategy
from redelivery.dlq.dead_letter_places import DeadLetterPlaces, dead_letter_places, own_dead_letter_queues
from redelivery.dlq.dlq_connection import DeadLetterConnection
from redelivery.dlq.second_letters import SecondLetters

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redelivery.testing import MemoryBroker

TELLING = replace(ARTEMIS, tells_dead_letters=True)


class Settings(Port):
    """Broker whose addresses have these dead-letter settings; the others have none."""

    def __init__(
        self, queues: Sequence[dict[str, str]], settings: dict[str, dict[str, object]], **more: Any
    ) -> None:
        super().__init__(queues, able=TELLING, **more)
        self._settings = settings

    def told(self, operation: str, arguments: Sequence[Any]) -> object:
        if operation == "getAddressNames":
            return list(self._settings)
        return json.dumps(self._settings.get(arguments[0], {}))


def own(name: str, address: str = "DLA", **more: str) -> dict[str, str]:
    """A queue on a dead-letter address."""
    return row(name, address, routingType="MULTICAST", **more)


EACH: dict[str, object] = {"deadLetterAddress": "DLA", "autoCreateDeadLetterResources": True}
QUEUES = [
    own("DLQ.a"), own("DLQ.b"), own("DLQ.empty", messageCount="0"), own("x", "other"), row("dead"), row("live"),
]  # fmt: skip
SETTINGS: dict[str, dict[str, object]] = {"a": EACH, "b": EACH, "c": {"deadLetterAddress": "dead"}, "d": {}}


def test_queues_on_the_dead_letter_addresses_of_all() -> None:
    """Queues with messages on the dead-letter address of any address are found, and no other queue."""
    port = Settings(QUEUES, SETTINGS)
    found = ("native://DLA::DLQ.a", "native://DLA::DLQ.b", "queue://dead")
    assert own_dead_letter_queues(port) == (found, "")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("origin", "found"),
    [
        ("queue://a", ("native://DLA::DLQ.a",)),
        ("queue://c", ("queue://dead",)),
        ("topic://b", ("native://DLA::DLQ.b",)),
        ("native://a::q", ("native://DLA::DLQ.a",)),
        # No setting names one that is there: the usual one.
        ("queue://d", ("queue://DLQ",)),
    ],
)
def test_queues_for_an_origin(origin: str, found: tuple[str, ...]) -> None:
    """Of a named origin only the queues for its dead letters are found."""
    assert own_dead_letter_queues(Settings(QUEUES, SETTINGS), [origin]) == (found, "")  # type: ignore[arg-type]


def test_a_user_who_may_not_ask() -> None:
    """Without the right the reason is returned, and nothing is raised: the usual place is looked at."""
    found, unknown = own_dead_letter_queues(Settings(QUEUES, SETTINGS, refuses="no right"))  # type: ignore[arg-type]
    assert found == ()
    assert "does not name its dead-letter addresses to this user: no right" in unknown


def test_more_addresses_than_are_asked_for() -> None:
    """Beyond a thousand addresses the rest is not asked for, and the answer says so."""
    many: dict[str, dict[str, object]] = {f"a{number}": {} for number in range(1001)}
    found, unknown = own_dead_letter_queues(Settings(QUEUES, {**many, "c": SETTINGS["c"]}))  # type: ignore[arg-type]
    assert (found, "more than 1,000 addresses" in unknown) == ((), True)


@pytest.mark.parametrize(
    ("options", "asks"),
    [
        ("", True),
        ("redelivery.deadLetterDestination=mine", False),
        ("redelivery.deadLetterStrategy=individual", False),
        ("redelivery.deadLetter=discard&redelivery.deadLetterMap.a.destination=mine", False),
    ],
)
def test_only_the_default_place_is_the_brokers(options: str, asks: bool) -> None:
    """The broker is asked where no option names the place."""
    settings = redelivery.parse_uri(f"amqp://x?{options}")
    assert dead_letter_places(settings, TELLING).own is asks
    assert not dead_letter_places(settings, ARTEMIS).own


def test_a_mapped_origin_is_not_the_brokers() -> None:
    """An origin with a place of its own in the map is looked up there only."""
    mapped = DeadLetterMap({"a": DeadLetterStrategy(destination="mine")})
    settings = replace(redelivery.parse_uri("amqp://x"), dead_letters=mapped)
    assert dead_letter_places(settings, TELLING, ["queue://a"]) == DeadLetterPlaces(("queue://mine",))
    assert dead_letter_places(settings, TELLING, ["queue://b"]).own


def test_places_of_the_settings_and_the_broker() -> None:
    """The broker's places come first, each once; reasons for others are kept."""
    places = DeadLetterPlaces(("queue://mine", "queue://DLQ"), ("why",), own=True)
    both = places.and_own(("queue://DLA", "queue://DLQ"), "more")
    queues = ("queue://DLA", "queue://DLQ", "queue://mine")
    assert both == DeadLetterPlaces(queues, ("why", "more"), own=True, shared=("queue://DLA",))
    assert both.unshared().queues == queues[1:]
    assert places.and_own((), "") == places


@pytest.mark.parametrize(
    ("options", "origins", "assumed"),
    [
        ("", ["queue://a"], "queue://DLQ"),
        ("", [], ""),
        ("redelivery.deadLetterMap.m.destination=mine", ["queue://a", "queue://m"], "queue://DLQ"),
        # The map names it, too.
        ("redelivery.deadLetterMap.m.destination=DLQ", ["queue://a", "queue://m"], ""),
        ("redelivery.deadLetterDestination=mine", ["queue://a"], ""),
    ],
)
def test_an_origins_own_place_takes_the_place_of_the_usual_one(
    options: str, origins: list[str], assumed: str
) -> None:
    """Artemis routes its letter to both queues of one address: of named origins only their own place is looked at."""
    found = dead_letter_places(redelivery.parse_uri(f"amqp://x?{options}"), TELLING, origins)
    assert found.assumed == assumed
    both = found.and_own(("native://DLQ::DLQ.a",), "").queues
    assert both[0] == "native://DLQ::DLQ.a"
    assert ("queue://DLQ" in both) == (not assumed and found.own)
    assert "queue://DLQ" in found.and_own((), "no right").queues or not found.own


RECORD = {"_AMQ_ORIG_ADDRESS": "a", "_AMQ_ORIG_QUEUE": "a"}
BOTH = ("native://DLQ::DLQ.a", "queue://DLQ")


@pytest.fixture
def letters_twice(broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch) -> str:
    """Two letters that the broker has routed to two queues of an address each, one on each alone, and copies."""
    origin = {"redeliveryOriginalDestination": "queue://a"}
    for queue in BOTH:
        for number in ("1", "2"):
            broker.send(queue, number, headers={**RECORD, "_AMQ_ORIG_MESSAGE_ID": number, **origin})
        broker.send(queue, f"copy in {queue}", headers={**RECORD, **origin})
    broker.send(BOTH[0], "3", headers={**RECORD, "_AMQ_ORIG_MESSAGE_ID": "3", **origin})
    broker.send(BOTH[1], "4", headers={**RECORD, "_AMQ_ORIG_MESSAGE_ID": "4", **origin})
    broker.send(
        BOTH[1],
        "other queue",
        headers={**RECORD, "_AMQ_ORIG_QUEUE": "q", "_AMQ_ORIG_MESSAGE_ID": "1", **origin},
    )
    monkeypatch.setattr(DeadLetterConnection, "queues", lambda *_: BOTH)
    return broker.uri


ONCE = {"1", "2", "3", "4", "other queue", *(f"copy in {queue}" for queue in BOTH)}


def test_a_letter_in_two_queues_of_an_address_is_shown_once(letters_twice: str) -> None:
    """A look over both queues counts each message that died once, and leaves out no other letter."""
    with redelivery.dead_letters(letters_twice, "DLQ.>") as dead:
        bodies = [each.body.decode() for each in dead]
        assert sorted(bodies) == sorted(ONCE)
        assert sum(each.count for each in dead.summary()) == len(ONCE)


@pytest.mark.parametrize("dry", [True, False])
def test_a_letter_in_two_queues_of_an_address_is_redriven_once(
    broker: MemoryBroker, letters_twice: str, *, dry: bool
) -> None:
    """A redrive sends each message back once, and removes the second letter: the next redrive would double it."""
    with redelivery.dead_letters(letters_twice, "DLQ.>") as dead:
        done = dead.redrive(dry_run=dry)
        assert (done.redriven, done.doubles, done.incomplete) == (len(ONCE), 2, None)
        assert dead.purge(dry_run=True).purged == (len(ONCE) + 2 if dry else 0)
        assert (dead.redrive().redriven, dead.redrive().redriven) == (len(ONCE) if dry else 0, 0)
    assert sorted(each.body.decode() for each in broker.messages("a")) == sorted(ONCE)


@pytest.mark.parametrize("forged", [("forged", {}), ("1", {"colour": "red"})], ids=["body", "property"])
def test_a_forged_record_removes_no_other_letter(
    broker: MemoryBroker, letters_twice: str, forged: tuple[str, dict[str, str]]
) -> None:
    """Users who may send to a dead-letter address can write any record: a letter that differs otherwise is another."""
    body, more = forged
    record = {**RECORD, "_AMQ_ORIG_MESSAGE_ID": "4", "redeliveryOriginalDestination": "queue://a"}
    broker.send(BOTH[0], body, headers={**record, **more})
    with redelivery.dead_letters(letters_twice, "DLQ.>") as dead:
        assert len(list(dead)) == len(ONCE) + 1
        assert (dead.redrive().redriven, dead.redrive().redriven) == (len(ONCE) + 1, 0)
    assert sorted(each.body.decode() for each in broker.messages("a")) == sorted([*ONCE, body])


def test_one_second_letter_is_removed_from_a_queue(broker: MemoryBroker, letters_twice: str) -> None:
    """Artemis puts one into each queue: what is there once more, alike in all, stays."""
    again = {**RECORD, "_AMQ_ORIG_MESSAGE_ID": "1", "redeliveryOriginalDestination": "queue://a"}
    broker.send(BOTH[1], "1", headers=again)
    with redelivery.dead_letters(letters_twice, "DLQ.>") as dead:
        done = dead.redrive()
    assert (done.doubles, broker.depth("DLQ")) == (2, 1)


def test_a_second_letter_stays_where_the_first_was_not_redriven(
    broker: MemoryBroker, letters_twice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A letter is removed only after the copy of the other one was confirmed."""
    monkeypatch.setattr(SecondLetters, "gone", lambda *_: None)
    with redelivery.dead_letters(letters_twice, "DLQ.>") as dead:
        done = dead.redrive()
    assert (done.redriven, done.doubles) == (len(ONCE), 0)
    assert done.incomplete == "2 stay in queue://DLQ: other queues of its address have them, too"
    assert broker.depth("DLQ") == 2

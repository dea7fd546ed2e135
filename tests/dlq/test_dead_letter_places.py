"""Places of dead letters: where the settings of a URI let them go, and the tools of several places at once."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import redelivery
import redelivery_memory.adapter
from redelivery import ConfigurationError
from redelivery.core.capabilities import Capabilities
from redelivery.dlq.dead_letter_places import dead_letter_places

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redelivery.testing import MemoryBroker

CLASSIC = Capabilities(
    "activemq",
    dead_letter_destination="queue://ActiveMQ.DLQ",
    individual_prefixes=("ActiveMQ.DLQ.Queue.", "ActiveMQ.DLQ.Topic."),
)
STOMP = replace(CLASSIC, own_poison="last")
RABBIT = Capabilities("rabbitmq", queue_wildcards=False)
MAP = "redelivery.deadLetterMap."
OWN = "redelivery.deadLetterStrategy=individual"
UNLISTED = "rabbitmq does not list queues over this protocol: name the dead-letter queue, or the origin"


@pytest.mark.parametrize(
    ("options", "able", "origins", "queues"),
    [
        ("", CLASSIC, (), ["ActiveMQ.DLQ"]),
        ("", RABBIT, (), ["DLQ"]),
        # The broker's own, too, to which it moves what cannot be copied.
        ("redelivery.deadLetterDestination=graves", STOMP, (), ["graves", "ActiveMQ.DLQ"]),
        ("redelivery.deadLetterDestination=graves", STOMP, ("queue://a",), ["graves", "ActiveMQ.DLQ"]),
        ("redelivery.deadLetterDestination=graves", STOMP, ("topic://a",), ["graves"]),
        ("redelivery.deadLetterDestination=graves&redelivery.deadLetter=forward", STOMP, (), ["graves"]),
        (f"{MAP}a.destination=b", STOMP, ("queue://a",), ["b", "ActiveMQ.DLQ"]),
        (f"{MAP}a.destination=b", STOMP, (), ["b", "ActiveMQ.DLQ"]),
        ("redelivery.deadLetterDestination=graves", RABBIT, (), ["graves"]),
        ("redelivery.deadLetter=ack", CLASSIC, (), ["ActiveMQ.DLQ"]),
        (f"{MAP}a.destination=b&{MAP}c.>.destination=d", RABBIT, (), ["b", "d", "DLQ"]),
        (f"{MAP}a.destination=b&{MAP}c.>.destination=b", RABBIT, (), ["b", "DLQ"]),
        (f"{MAP}a.destination=b&redelivery.deadLetter=discard", RABBIT, (), ["b"]),
        (f"{MAP}a.deadLetter=discard", RABBIT, (), ["DLQ"]),
        (f"{MAP}a.destination=b&{MAP}c.>.destination=d", RABBIT, ("queue://c.x",), ["d"]),
        (OWN, CLASSIC, (), ["ActiveMQ.DLQ.Queue.>", "ActiveMQ.DLQ.Topic.>"]),
        (OWN, CLASSIC, ("queue://a", "topic://b"), ["ActiveMQ.DLQ.Queue.a", "ActiveMQ.DLQ.Topic.b"]),
        (OWN, RABBIT, ("queue://a",), ["DLQ.a"]),
        (f"{OWN}&redelivery.queuePrefix=dead.", CLASSIC, (), ["dead.>", "ActiveMQ.DLQ.Topic.>"]),
        (f"{MAP}a.strategy=individual", RABBIT, (), ["DLQ.a", "DLQ"]),
        (f"{MAP}a.b.>.strategy=individual", CLASSIC, (), ["ActiveMQ.DLQ.Queue.a.b.>", "ActiveMQ.DLQ"]),
        # Shown once: the pattern covers the other place.
        (
            f"{OWN}&{MAP}a.destination=ActiveMQ.DLQ.Queue.z",
            CLASSIC,
            (),
            ["ActiveMQ.DLQ.Queue.>", "ActiveMQ.DLQ.Topic.>"],
        ),
    ],
)
def test_where_they_go(options: str, able: Capabilities, origins: tuple[str, ...], queues: list[str]) -> None:
    """Each strategy of the settings names its place; an individual one is a pattern where the broker can show it."""
    found = dead_letter_places(redelivery.parse_uri(f"memory://x?{options}"), able, origins)
    assert [name.removeprefix("queue://") for name in found.queues] == queues
    assert not found.unknown


def test_the_brokers_own_queue_has_others_letters_too() -> None:
    """A letter beside a named place is looked at; without an origin it stays there."""
    graves = redelivery.parse_uri("stomp://x?redelivery.deadLetterDestination=graves")
    found = dead_letter_places(graves, STOMP)
    assert found.shared == ("queue://ActiveMQ.DLQ",)
    assert found.unshared().queues == ("queue://graves",)
    assert "queue://ActiveMQ.DLQ: not touched; name the queue" in found.unshared().unknown[0]
    usual = dead_letter_places(redelivery.parse_uri("stomp://x"), STOMP)
    assert usual.unshared() == usual


@pytest.mark.parametrize(
    ("options", "able", "why"),
    [
        (OWN, RABBIT, UNLISTED),
        (f"{OWN}&redelivery.queueSuffix=.x&redelivery.topicSuffix=.x", CLASSIC, "no pattern stands for these names"),
        (f"{OWN}&redelivery.useQueueForQueueMessages=false&redelivery.useQueueForTopicMessages=false",
         CLASSIC, "go to topic://ActiveMQ.DLQ.Queue.>, which keeps none of them"),
        ("redelivery.deadLetter=discard", CLASSIC, "lets no dead letter be kept"),
        ("redelivery.deadLetterDestination=topic://t", CLASSIC, "go to topic://t, which keeps none of them"),
    ],
)  # fmt: skip
def test_where_no_place_is_known(options: str, able: Capabilities, why: str) -> None:
    """Where no place can be looked at, the error says why, and what to name."""
    with pytest.raises(ConfigurationError, match=why):
        dead_letter_places(redelivery.parse_uri(f"memory://x?{options}"), able)


def test_a_place_of_a_subscriber_asks_for_no_more_than_its_name() -> None:
    """A topic's place for each durable subscription depends on a name that no origin has: the error names the queue."""
    settings = redelivery.parse_uri(
        f"memory://x?jms.clientID=c&{OWN}&redelivery.destinationPerDurableSubscriber=true"
    )
    with pytest.raises(
        ConfigurationError, match=r"name the dead-letter queue \(.*\.Topic\.t\.clientID:sub"
    ) as refused:
        dead_letter_places(settings, CLASSIC, ("topic://t",))
    assert "--destination" not in str(refused.value)


def test_what_is_known_is_looked_at_and_the_rest_is_told() -> None:
    """A place that cannot be found beside one that can is reported."""
    settings = redelivery.parse_uri(f"memory://x?{OWN}&{MAP}a.destination=b")
    found = dead_letter_places(settings, RABBIT)
    assert found.queues == ("queue://b",)
    assert len(found.unknown) == 2
    assert UNLISTED in found.unknown[0]


@pytest.fixture
def uri(broker: MemoryBroker) -> str:
    """Three places with one, two and three dead letters."""
    for count, (origin, place) in enumerate((("a", "a.dead"), ("b", "b.dead"), ("c", "DLQ")), 1):
        for number in range(count):
            headers = {
                "redeliveryOriginalDestination": f"queue://{origin}",
                "redeliveryCause": f"E{number}: x",
            }
            broker.send(place, f"{origin}{number}", headers=headers)
    return f"{broker.uri}?{MAP}a.destination=a.dead&{MAP}b.destination=b.dead"


def test_all_places_at_once(broker: MemoryBroker, uri: str) -> None:
    """Looks, redrives and purges go through all places; progress and counts are of all; an origin chooses its place."""
    with redelivery.dead_letters(uri) as dead:
        assert dead.queue == "queue://a.dead, queue://b.dead, queue://DLQ"
        assert [(one.queue, one.body) for one in dead][:3] == [
            ("queue://a.dead", b"a0"), ("queue://b.dead", b"b0"), ("queue://b.dead", b"b1"),
        ]  # fmt: skip
        groups = dead.summary(cause="E0")
        assert {(one.queue, one.count) for one in groups} == {
            ("queue://a.dead", 1), ("queue://b.dead", 1), ("queue://DLQ", 1),
        }  # fmt: skip
        assert dead.places(destination="b") == ("queue://b.dead",)
        assert dead.contents().count == 6
        with pytest.raises(ConfigurationError, match="is the dead-letter queue itself, or one of them"):
            dead.redrive(to="b.dead")
        seen: list[int] = []
        done = dead.redrive(cause=["E0", "E1"], progress=seen.append)
        assert done.destinations == {"queue://b": 2, "queue://c": 2, "queue://a": 1}
        assert (done.redriven, done.skipped, max(seen), seen == sorted(seen)) == (5, 1, 5, True)
        assert dead.purge().purged == 1


def test_a_place_that_is_refused_does_not_keep_the_others_from_view(
    broker: MemoryBroker, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused place among several is reported at the end; if each is refused, it is an error."""
    refusing = {"queue://b.dead"}
    shown = redelivery_memory.MemoryAdapter.execute

    def execute(self: Any, commands: Any) -> None:
        kept = [one for one in commands if getattr(one, "destination", None) not in refusing]
        for one in commands:
            if one not in kept:
                error = redelivery.AdapterError(f"no queue {one.destination}")
                self._open[1]._sink(redelivery.adapter.Subscribed(one.consumer, error))
        shown(self, kept)

    monkeypatch.setattr(redelivery_memory.MemoryAdapter, "execute", execute)
    with redelivery.dead_letters(uri) as dead:
        assert len(list(dead)) == 4
        assert dead.limit == "queue://b.dead: no queue queue://b.dead"
        done = dead.purge(cause="E2")
        assert (done.purged, done.incomplete) == (1, "queue://b.dead: no queue queue://b.dead")
        refusing |= {"queue://a.dead", "queue://DLQ"}
        with pytest.raises(redelivery.AdapterError, match="no queue"):
            list(dead)


def test_each_queue_has_its_own_place(broker: MemoryBroker, uri: str) -> None:
    """Individual places are shown by their pattern, each letter with its own queue; redriven to their origins."""
    broker.send("DLQ.a", "x", headers={"redeliveryOriginalDestination": "queue://a"})
    broker.send("DLQ.b.c", "y", headers={"redeliveryOriginalDestination": "queue://b.c"})
    with redelivery.dead_letters(f"{broker.uri}?{OWN}") as dead:
        assert dead.queue == "queue://DLQ.>"
        assert sorted(one.queue for one in dead if one.queue != "queue://DLQ") == [
            "queue://DLQ.a",
            "queue://DLQ.b.c",
        ]
        assert [one.queue for one in dead.list(destination="a")] == ["queue://DLQ.a"]
        for take in (dead.purge, lambda: dead.redrive(to="elsewhere")):
            with pytest.raises(
                ConfigurationError, match=r"queue://DLQ\.>, and other queues may have such names"
            ):
                take()
        assert dead.redrive(destination=["a", "b.c"]).destinations == {"queue://a": 1, "queue://b.c": 1}
    with redelivery.dead_letters(f"{broker.uri}?{OWN}", "DLQ.>") as dead:
        assert dead.purge(dry_run=True).incomplete is None


def test_on_the_command_line(
    run: Callable[[Sequence[str]], int],
    broker: MemoryBroker,
    uri: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One table has all places; JSON names them; a broker that cannot list individual places says what to name."""
    monkeypatch.setenv("COLUMNS", "200")
    assert run(["dlq", "summary", uri, "--cause", "E0"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[0].split() == ["count", "in", "from", "cause", "day"]
    assert "queue://b.dead" in out
    assert err == "3 dead letters in queue://a.dead, queue://b.dead, queue://DLQ\n"
    assert run(["dlq", "list", uri]) == 0
    assert capsys.readouterr().out.splitlines()[0].split()[:3] == ["id", "in", "from"]
    assert run(["dlq", "summary", uri, "--output", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["queues"] == ["queue://a.dead", "queue://b.dead", "queue://DLQ"]
    assert run(["dlq", "purge", uri, "--yes", "--destination", "a", "--idle", "0.1"]) == 0
    assert (broker.depth("a.dead"), broker.depth("DLQ")) == (0, 3)
    able = replace(redelivery_memory.CAPABILITIES, queue_wildcards=False)
    monkeypatch.setattr(redelivery_memory.adapter, "CAPABILITIES", able)
    capsys.readouterr()
    for words in (["summary"], ["list"], ["redrive"], ["purge", "--yes"], ["export"], ["show", "x"]):
        given = [*words[:1], f"{broker.uri}?{OWN}", *words[1:]]
        assert run(["dlq", *given]) == 78
        said = capsys.readouterr().err
        assert (
            "memory does not list queues over this protocol: name the dead-letter queue, or the origin"
            in said
        )
        assert said.count("\n") == 1


def test_a_map_that_the_program_gives(broker: MemoryBroker) -> None:
    """The tools look at the places of the same map, without a queue and without options in the URI."""
    places = redelivery.DeadLetterMap(
        {"orders": redelivery.DeadLetterStrategy(destination="orders.dead")},
        default=redelivery.DeadLetterStrategy(destination="dead"),
    )
    with redelivery.dead_letters(broker.uri, dead_letters=places) as tools:
        assert tools.places() == ("queue://orders.dead", "queue://dead")
    with pytest.raises(redelivery.ConfigurationError, match="contradict each other"):
        redelivery.dead_letters(f"{broker.uri}?redelivery.deadLetterDestination=x", dead_letters=places)

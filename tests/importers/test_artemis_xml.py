"""Artemis' `broker.xml`: address settings, merged as the broker merges them."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from redelivery import ArtemisRedeliveryPolicy, ConfigurationError, RedeliveryPolicyMap
from redelivery.core.policy.wildcards import AddressMatch, ArtemisWildcards
from redelivery.importers import uri_writer
from redelivery.uri.parser import parse_uri
from redelivery.uri.syntax import with_options

VECTORS = json.loads(
    (Path(__file__).parents[1] / "vectors" / "artemis_address_settings.json").read_text(encoding="utf-8")
)
CORE = '<configuration xmlns="urn:activemq"><core xmlns="urn:activemq:core">\n{}</core></configuration>'


def settings(*entries: tuple[str, str], before: str = "") -> str:
    """Return a `broker.xml`. Each entry is a match and its elements, on one line."""
    lines = "\n".join(
        f'<address-setting match="{match}">{elements}</address-setting>' for match, elements in entries
    )
    return CORE.format(f"{before}<address-settings>\n{lines}\n</address-settings>")


def test_vectors(imported: Any) -> None:
    """Each address has the settings that Artemis itself merges for it, also with configured wildcards."""
    assert VECTORS["count"] == len(VECTORS["vectors"]) > 20
    for vector in VECTORS["vectors"]:
        policies = imported(vector["xml"]).policies
        for address, (delay, multiplier, longest, attempts) in vector["lookups"].items():
            expected = ArtemisRedeliveryPolicy.from_options(
                {
                    "redelivery-delay": delay,
                    "redelivery-delay-multiplier": multiplier,
                    "max-redelivery-delay": longest,
                    "max-delivery-attempts": attempts,
                }
            )
            found = policies.policy_for(address)
            assert found.delays_ms(9) == expected.delays_ms(9), (vector["xml"], address)
            assert found.maximum_redeliveries == expected.maximum_redeliveries, (vector["xml"], address)


def test_the_examples_of_the_documentation(imported: Any) -> None:
    """The examples of Artemis' documentation give its delays.

    They are: 5000 ms doubled up to 15000; 1000 ms varied by a factor of 0.5; dead-lettered after 3 attempts.
    """
    found = imported(
        settings(
            ("doubled", ("<redelivery-delay>5000</redelivery-delay>"
             "<redelivery-delay-multiplier>2</redelivery-delay-multiplier>"
             "<max-redelivery-delay>15000</max-redelivery-delay>")),
            ("varied", ("<redelivery-delay>1000</redelivery-delay><max-redelivery-delay>15000</max-redelivery-delay>"
             "<redelivery-collision-avoidance-factor>0.5</redelivery-collision-avoidance-factor>")),
            ("exampleQueue", ("<dead-letter-address>deadLetterAddress</dead-letter-address>"
             "<max-delivery-attempts>3</max-delivery-attempts>")),
        )
    )  # fmt: skip
    assert found.policies.policy_for("doubled").delays_ms(4) == [5000, 10000, 15000, 15000]
    assert found.policies.policy_for("exampleQueue").maximum_redeliveries == 2
    varied = found.policies.policy_for("varied")
    drawn = [varied.delays_ms(1, Random(seed))[0] for seed in range(300)]
    assert 500 <= min(drawn) < 600 < 1400 < max(drawn) <= 1500

    class Drawn:
        """Draws of the documentation: a coin for the side, then the share."""

        def __init__(self) -> None:
            self._next = iter([0.9, 0.25, 0.1, 0.75, 0.9, 0.05])

        def random(self) -> float:
            return next(self._next)

    assert varied.delays_ms(3, Drawn()) == [875, 1375, 975]


def test_a_document_of_artemis_1(imported: Any) -> None:
    """`jms.queue.exampleQueue` sets that address, and `exampleQueue`, which is the queue's name here."""
    options = "<dead-letter-address>jms.queue.dlq</dead-letter-address><max-delivery-attempts>3</max-delivery-attempts>"
    found = imported(settings(("jms.queue.exampleQueue", options)))
    for name in ("exampleQueue", "native://jms.queue.exampleQueue"):
        assert found.policies.policy_for(name).maximum_redeliveries == 2
    assert "taken for exampleQueue, too" in str(found.notes[0])
    read = parse_uri(with_options("stomp://h", found.dead_letters)).dead_letters
    for name in ("queue://exampleQueue", "queue://jms.queue.exampleQueue"):
        assert read.strategy_for(name).destination == "queue://jms.queue.dlq", "as it is written"


def test_a_broker_as_it_is_created(imported: Any) -> None:
    """The settings that `artemis create` writes are read; those without relation to redelivery make no note."""
    rest = "<redelivery-delay>0</redelivery-delay><max-size-bytes>-1</max-size-bytes>"
    dead = "<dead-letter-address>DLQ</dead-letter-address>"
    found = imported(settings(("activemq.management#", dead + rest), ("#", dead + rest)))
    assert found.policies == RedeliveryPolicyMap.from_artemis_settings(
        {"#": ArtemisRedeliveryPolicy(), "activemq.management.#": ArtemisRedeliveryPolicy()},
        ArtemisRedeliveryPolicy(),
    )
    assert (found.dead_letters, found.notes) == ({"redelivery.deadLetterDestination": "queue://DLQ"}, ())


@pytest.mark.parametrize(
    ("text", "line", "what", "why"),
    [
        (
            CORE.format("<persist-delivery-count-before-delivery>true</persist-delivery-count-before-delivery>"),
            2, "persist-delivery-count-before-delivery=true", "redelivery.ledger",
        ),
        (
            settings(("a", "<max-delivery-attempts>3</max-delivery-attempts>")),
            3, "match=a", "without a dead-letter-address Artemis drops",
        ),
        (
            settings(("a", "<expiry-address>E</expiry-address>")),
            3, "expiry-address=E of a", "processExpired",
        ),
        (
            settings(("a", "<redelivery-dealy>5</redelivery-dealy>")),
            3, "redelivery-dealy of a", "did you mean 'redelivery-delay'?",
        ),
        (settings(("a*b.#", "")), 3, "match=a*b.#", "* only as a whole word"),
        (
            settings(("a", ""), ("a", "")),
            3, "match=a", "line 4",
        ),
        (
            settings(("a", "<max-delivery-attempts>${n:4}</max-delivery-attempts>")),
            3, "max-delivery-attempts=${n:4}", "'4'",
        ),
        (
            settings(("(a.#)", ""), before="<literal-match-markers>()</literal-match-markers>"),
            3, "match=a.#", "literal",
        ),
        (
            CORE.format('<x:include xmlns:x="http://www.w3.org/2001/XInclude" href="a.xml"/>'),
            2, "include a.xml", "other files",
        ),
        (
            settings(("a,b", "<dead-letter-address>DLA</dead-letter-address>")),
            3, "dead-letter-address", "a,b: a URI's patterns cannot express this name; left out",
        ),
    ],
)  # fmt: skip
def test_notes(imported: Any, text: str, line: int, what: str, why: str) -> None:
    """Each setting that is not carried over is named with its line and the reason."""
    notes = [note for note in imported(text).notes if note.what == what and why in note.why]
    assert [note.line for note in notes] == [line]


def test_each_address_has_its_own_dead_letter_address(imported: Any) -> None:
    """An entry has what Artemis merges for its addresses, for queues and topics; overlaps have their own."""
    found = imported(
        settings(
            ("#", "<dead-letter-address>DLQ</dead-letter-address>"),
            ("orders.#", "<dead-letter-address>orders.dead</dead-letter-address>"),
            ("orders.auto", CREATED),
            ("*.eu", "<dead-letter-address>eu.dead</dead-letter-address>"),
            ("plain", "<max-delivery-attempts>3</max-delivery-attempts>"),
        )
    )
    read = parse_uri(with_options("stomp://h", found.dead_letters)).dead_letters
    expected = {
        "x": "DLQ", "orders": "orders.dead", "orders.us": "orders.dead", "bills.eu": "eu.dead", "plain": "DLQ",
        "orders.eu": "eu.dead",
    }  # fmt: skip
    for name, place in expected.items():
        for kind in ("queue", "topic"):
            assert read.strategy_for(f"{kind}://{name}").destination == f"queue://{place}", name
    assert read.strategy_for("orders.auto").destination == "native://orders.dead::DLQ.orders.auto"


DLA = "<dead-letter-address>DLA</dead-letter-address>"
CREATED = "<auto-create-dead-letter-resources>true</auto-create-dead-letter-resources>"


def test_a_queue_for_each_address(imported: Any) -> None:
    """The broker's queue of one address is its place, of queues and topics; those of many addresses are left out."""
    suffix = "<dead-letter-queue-prefix/><dead-letter-queue-suffix>.DLQ</dead-letter-queue-suffix>"
    found = imported(
        settings(
            ("#", "<dead-letter-address>wide</dead-letter-address>"), ("auto.#", DLA + CREATED),
            ("auto.x", ""), ("auto.y", suffix), ("z", DLA + CREATED + suffix), ("DLA", DLA + CREATED),
        )
    )  # fmt: skip
    read = found.dead_letter_map
    expected = {
        "auto": None, "auto.x": None, "auto.y": "native://DLA::auto.y.DLQ", "z": "native://DLA::z.DLQ",
        "DLA": "queue://DLA", "other": "queue://wide",
    }  # fmt: skip
    for kind in ("queue", "topic"):
        strategies = {name: read.strategy_for(f"{kind}://{name}") for name in expected}
        assert {name: strategy.destination for name, strategy in strategies.items()} == expected
        assert {strategy.strategy for strategy in strategies.values()} == {"shared"}
    (note,) = [note for note in found.notes if note.left_out]
    assert (note.line, note.what) == (4, "auto-create-dead-letter-resources=true of auto.#")
    assert "native://DLA::DLQ.ADDRESS" in note.why


def test_a_queue_for_each_address_without_a_dead_letter_address(imported: Any) -> None:
    """Artemis makes no queue where there is no dead-letter address: it drops the message, which a note says."""
    found = imported(settings(("#", CREATED), ("a", CREATED)))
    assert found.dead_letters == {}
    assert [(note.what, note.left_out) for note in found.notes] == [("match=#", False), ("match=a", False)]


@pytest.mark.parametrize(
    ("queues", "place", "said"),
    [
        ('<queue name="a"/>', "native://DLA::a", None),
        ('<queue name="a"><durable>true</durable></queue><queue name="f"><filter string="x"/></queue>',
         "native://DLA::a", None),
        ('<queue name="a"/><queue name="b"/>', "topic://DLA", "native://DLA::a, native://DLA::b"),
        ("", "topic://DLA", "only its subscribers"),
        ('<queue name="a"><durable>false</durable></queue>', "topic://DLA", "only its subscribers"),
        ('<queue name="a" ring-size="5"/>', "topic://DLA", "only its subscribers"),
        ('<queue name="a" purge-on-no-consumers="true"/>', "topic://DLA", "only its subscribers"),
    ],
)  # fmt: skip
def test_a_multicast_dead_letter_address(imported: Any, queues: str, place: str, said: str | None) -> None:
    """A multicast address with one queue that keeps each letter is that queue; any other is a topic, with a note."""
    address = f'<addresses><address name="DLA"><multicast>{queues}</multicast></address></addresses>'
    found = imported(settings(("#", DLA), before=address))
    assert found.dead_letters == {"redelivery.deadLetterDestination": place}
    notes = [note.why for note in found.notes if note.what == "address DLA"]
    assert len(notes) == (said is not None)
    assert said is None or said in notes[0]


@pytest.mark.parametrize(
    ("wide", "own", "left_out"),
    [
        (DLA, "<expiry-address>E</expiry-address>", True),
        (DLA, "<expiry-address>DLA</expiry-address>", False),
        ("", f"{DLA}<expiry-address>DLA</expiry-address>", False),
        (DLA, "<dead-letter-address>E</dead-letter-address><expiry-address>DLA</expiry-address>", True),
        (DLA, "<expiry-address/>", False),
        (DLA, "<expiry-address>ExpiryQueue</expiry-address>", False),
    ],
)
def test_an_expiry_address(imported: Any, wide: str, own: str, left_out: bool) -> None:
    """An expiry address is left out where it is another place than that of dead letters, which expired ones get."""
    found = imported(settings(("#", wide), ("a", own)))
    (note,) = [note for note in found.notes if note.what.startswith("expiry-address")]
    assert (note.line, note.left_out) == (4, left_out)


def test_wildcards_of_ones_own(imported: Any) -> None:
    """The map uses the configured wildcard characters; characters that are not different are refused."""
    characters = "<wildcard-addresses><delimiter>/</delimiter><any-words>{}</any-words></wildcard-addresses>"
    found = imported(
        settings(
            ("a/&gt;", "<max-delivery-attempts>1</max-delivery-attempts>"), before=characters.format("&gt;")
        )
    )
    assert found.policies.wildcards == ArtemisWildcards("/", "*", ">")
    assert [found.policies.pattern_for(name) for name in ("a", "a/b/c", "a.b")] == ["a/>", "a/>", None]
    with pytest.raises(ConfigurationError, match=r"^f:2: .* three different characters"):
        imported(settings(before=characters.format("/")))


@pytest.mark.parametrize(
    ("elements", "error"),
    [
        ("<redelivery-delay>-1</redelivery-delay>", "f:3: redelivery-delay must be a whole number"),
        ("<redelivery-delay>1s</redelivery-delay>", "f:3: redelivery-delay must be"),
        (
            "\n<redelivery-collision-avoidance-factor>2</redelivery-collision-avoidance-factor>",
            "f:4: redelivery-collision-avoidance-factor must be a number from 0 to 1, not 2.0",
        ),
        (
            "<dead-letter-address>a.*</dead-letter-address>",
            "f:3: redelivery.deadLetterDestination must be one",
        ),
    ],
)
def test_mistakes(imported: Any, elements: str, error: str) -> None:
    """A value out of range is an error with its option and its line."""
    with pytest.raises(ConfigurationError) as caught:
        imported(settings(("#", elements)))
    assert str(caught.value).startswith(error)


def test_overlaps_are_bounded(monkeypatch: pytest.MonkeyPatch, imported: Any) -> None:
    """Matches that overlap in too many ways are named in a note, and are all in the map."""
    monkeypatch.setattr(uri_writer, "MOST", 5)
    attempts = "<max-delivery-attempts>3</max-delivery-attempts>"
    entries = [(f"{'*.' * n}x{'.*' * (5 - n)}", attempts) for n in range(6)]
    found = imported(settings(*entries))
    assert any("overlap in more than" in note.why and note.left_out for note in found.notes)
    assert {match for match, _ in entries} <= dict(found.policies.entries).keys()


def test_what_two_matches_cover() -> None:
    """The overlap of two matches covers an address exactly if both do, and is included in both."""
    texts = ["#", "a.#", "*.#", "a.*", "*.b", "a.b", "*.*.#", "a", "*", "b.*.c", "*.b.#"]
    names = ["a", "b", "a.b", "b.b", "a.c", "a.b.c", "b.b.c", "x.y.z.w"]
    for one in map(AddressMatch, texts):
        for other in map(AddressMatch, texts):
            both = one.overlap(other)
            for name in names:
                words = name.split(".")
                covered = one.covers(words) and other.covers(words)
                assert covered is (both is not None and both.covers(words)), (one.text, other.text, name)
            assert both is None or (one.includes(both) and other.includes(both))
            if one.includes(other):
                assert both is not None
                assert both.text == other.text

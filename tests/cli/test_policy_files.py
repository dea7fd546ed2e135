"""`redelivery policy explain FILE` and `redelivery policy convert`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from redelivery import RedeliveryPolicyMap, parse_uri

BROKER = """<core xmlns="urn:activemq:core"><address-settings>
<address-setting match="#"><dead-letter-address>LOST</dead-letter-address></address-setting>
<address-setting match="orders.#"><redelivery-delay>5000</redelivery-delay>
 <redelivery-delay-multiplier>2</redelivery-delay-multiplier><max-redelivery-delay>15000</max-redelivery-delay>
 <max-delivery-attempts>5</max-delivery-attempts><expiry-address>LOST</expiry-address></address-setting>
<address-setting match="once"><max-delivery-attempts>1</max-delivery-attempts></address-setting>
<address-setting match="ever"><max-delivery-attempts>-1</max-delivery-attempts></address-setting>
</address-settings></core>"""
CREATED = "<auto-create-dead-letter-resources>true</auto-create-dead-letter-resources>"
NOTE = "note: broker.xml:5: expiry-address=LOST of orders.#: "


@pytest.fixture
def broker(tmp_path: Path) -> Path:
    """A `broker.xml` in the current directory."""
    path = tmp_path / "broker.xml"
    path.write_text(BROKER)
    return path


@pytest.mark.usefixtures("broker")
def test_all_schedules(cli: Any) -> None:
    """Without a destination there is a row for each pattern, and one for all others; notes go to stderr."""
    ended = cli("policy", "explain", "broker.xml")
    assert ended.code == 0
    assert ended.error.startswith(NOTE)
    lines = [" ".join(line.split()) for line in ended.out.splitlines()]
    assert "orders.# 5 5 s, 10 s, 2 x 15 s 45 s" in lines
    assert "once 1 none 0 ms" in lines
    assert "ever no limit 10 x 0 ms, ... over 0 ms" in lines
    assert "(any other) 10 9 x 0 ms 0 ms" in lines
    assert lines[-1] == "then a copy goes to queue://LOST"


@pytest.mark.usefixtures("broker")
def test_all_schedules_as_json(cli: Any) -> None:
    """JSON has the policies, the dead-letter options and the notes; JSON lines have a policy each."""
    data = json.loads(cli("policy", "explain", "broker.xml", "--output", "json").out)
    assert (data["file"], data["kind"]) == ("broker.xml", "broker.xml")
    assert data["dead_letters"] == {"redelivery.deadLetterDestination": "queue://LOST"}
    assert data["notes"][0]["line"] == 5
    lines = cli("policy", "explain", "broker.xml", "--output", "jsonl").out.splitlines()
    assert [json.loads(line) for line in lines] == data["policies"]
    delays = {
        found["pattern"]: [row["delay_ms"] for row in found["redeliveries"]] for found in data["policies"]
    }
    assert delays["orders.#"] == [5000, 10000, 15000, 15000]
    assert data["policies"][-1]["pattern"] is None


PLACES = """<broker xmlns="http://activemq.apache.org/schema/core"><destinationPolicy><policyMap><policyEntries>
<policyEntry queue="orders.>"><deadLetterStrategy><sharedDeadLetterStrategy><deadLetterQueue>
<queue physicalName="orders.dead"/></deadLetterQueue></sharedDeadLetterStrategy></deadLetterStrategy></policyEntry>
<policyEntry queue="ind.>"><deadLetterStrategy><individualDeadLetterStrategy queuePrefix="DEAD."/></deadLetterStrategy>
</policyEntry></policyEntries></policyMap></destinationPolicy></broker>"""


def test_the_places_of_all_patterns(cli: Any, tmp_path: Path) -> None:
    """A file with places for patterns has a second table: what happens to the messages of each pattern."""
    (tmp_path / "activemq.xml").write_text(PLACES)
    lines = [" ".join(line.split()) for line in cli("policy", "explain", "activemq.xml").out.splitlines()]
    first = lines.index("dead letters of then")
    assert lines[first + 1 : first + 3] == [
        "queue://orders.> a copy goes to queue://orders.dead",
        "queue://ind.> a copy goes to queue://DEAD.ind.>, by its own name",
    ]
    assert lines[first + 3].startswith(
        "(any other) it goes to the dead-letter queue (ActiveMQ.DLQ on ActiveMQ Classic;"
    )
    found = json.loads(cli("policy", "explain", "activemq.xml", "--output", "json").out)
    assert found["dead_letter_map"][0] == {
        "pattern": "queue://orders.>",
        "then": "a copy goes to queue://orders.dead",
    }


@pytest.mark.usefixtures("broker")
def test_one_destination(cli: Any) -> None:
    """With a destination the policy that serves it is explained as that of a URI is."""
    ended = cli("policy", "explain", "broker.xml", "--destination", "orders.eu")
    assert ended.code == 0
    assert ended.error.startswith(NOTE)
    assert ended.out.splitlines()[0].split() == ["file", "broker.xml"]
    assert "pattern orders.#" in ended.out
    assert "after 5 failed deliveries a copy goes to queue://LOST" in ended.out
    data = json.loads(cli("policy", "explain", "broker.xml", "--destination", "a", "--output", "json").out)
    assert (data["file"], data["pattern"], data["destination"]) == ("broker.xml", None, "queue://a")


def test_to_toml(cli: Any, broker: Path) -> None:
    """TOML reads back as the same map, and says the same of dead letters."""
    ended = cli("policy", "convert", "broker.xml", "--to", "toml")
    assert ended.code == 0
    assert ended.error.startswith(NOTE)
    written = broker.with_name("policies.toml")
    written.write_text(ended.out)
    assert RedeliveryPolicyMap.from_toml(written) == RedeliveryPolicyMap.from_artemis_xml(broker)
    again = cli("policy", "convert", "policies.toml", "--to", "toml")
    assert (again.code, again.out, again.err) == (0, ended.out, "")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("broker.xml", BROKER.replace(">LOST</expiry", ">EXPIRED</expiry")),
        ("broker.xml", BROKER.replace("<dead-letter-address>", f"{CREATED}<dead-letter-address>")),
        ("broker.json", '{"queues": [], "virtualHostInitialConfiguration": "host.json"}'),
    ],
    ids=["expired messages", "a queue for each address", "another file"],
)
def test_a_place_that_is_left_out(cli: Any, tmp_path: Path, name: str, text: str) -> None:
    """Where something that decides a letter's place is left out, the exit code is 3."""
    (tmp_path / name).write_text(text)
    assert cli("policy", "convert", name).code == 3


def test_to_uri(cli: Any, broker: Path) -> None:
    """The options go behind the ? of a URI; a schedule that a URI cannot say is a note, and exit code 3."""
    ended = cli("policy", "convert", str(broker), "--to", "uri")
    assert ended.code == 0
    assert "native:// addresses" in ended.err.splitlines()[-1]
    settings = parse_uri(f"stomp://b?{ended.out.strip()}")
    assert settings.dead_letters.default.destination == "queue://LOST"
    found = RedeliveryPolicyMap.from_artemis_xml(broker)
    for name in ("orders.a", "topic://orders", "once", "ever", "x", "native://once"):
        assert settings.policies.policy_for(name).delays_ms(4) == found.policy_for(name).delays_ms(4)
    broker.write_text('<redeliveryPolicy queue="A" maximumRedeliveries="2"/>')
    ended = cli("policy", "convert", str(broker), "--to", "uri")
    assert (ended.code, ended.err) == (0, "")
    (broker.parent / "list.toml").write_text("[default]\ndelays = [1, 5, 30]\nmaximumElapsed = 20")
    listed = cli("policy", "convert", "list.toml", "--to", "uri")
    said = "redelivery.policy.delays=1,5,30&redelivery.policy.maximumElapsed=20\n"
    assert (listed.code, listed.out, listed.err) == (0, said, "")
    (broker.parent / "odd.toml").write_text("[default]\nredelivery-delay = 9\nredelivery-delay-multiplier = 0.5\n"
                                            "max-delivery-attempts = -1")  # fmt: skip
    odd = cli("policy", "convert", "odd.toml", "--to", "uri")
    assert (odd.code, "redelivery 3 is after 4 ms, not after 2 ms" in odd.error) == (3, True)
    assert ended.out == (
        "jms.redeliveryPolicy.maximumRedeliveries=6&jms.redeliveryPolicyMap.A.maximumRedeliveries=2\n"
    )


@pytest.mark.parametrize(
    ("args", "code", "named"),
    [
        (["explain", "away.xml"], 78, "away.xml: cannot be read: No such file"),
        (["explain", "."], 78, "cannot be read: Is a directory"),
        (["explain", "broker.xml", "orders"], 2, "give one connection URI or file"),
        (["explain", "broker.xml", "--plot", "a.png"], 2, "--destination"),
        (["explain", "broker.xml", "--destination", "queu://a"], 78, "queue://"),
        (["explain", "bad.xml"], 78, "bad.xml:1:1: the XML is not well-formed"),
        (["explain", "notes.yaml"], 78, "Java properties and YAML are not read"),
        (["convert"], 2, "needs URI|FILE"),
        (
            ["convert", "broker.xml", "--to", "tmol"],
            2,
            "--to must be uri or toml, not 'tmol'; did you mean 'toml'",
        ),
        (["convert", "bad.xml", "--to", "uri"], 78, "bad.xml:1:1: the XML is not well-formed"),
    ],
)
@pytest.mark.usefixtures("broker")
def test_mistakes(cli: Any, args: list[str], code: int, named: str) -> None:
    """A mistake is one line on stderr, and nothing on stdout."""
    Path("bad.xml").write_text("<a")
    Path("notes.yaml").write_text("a: b")
    ended = cli("policy", *args)
    assert (ended.code, ended.out) == (code, "")
    assert named in ended.err.splitlines()[-1]
    assert "Traceback" not in ended.err

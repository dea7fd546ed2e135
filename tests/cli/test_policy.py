"""`redelivery policy`."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from tests.needs import need

from redelivery import parse_uri, registry
from redelivery.cli.explain import explain
from redelivery.cli.formatting import duration, sparkline
from redelivery.cli.policy import _then
from redelivery_memory import MemoryAdapter

if TYPE_CHECKING:
    from pathlib import Path

PREFIX = "jms.redeliveryPolicy."
JITTER = f"memory://x?{PREFIX}useExponentialBackOff=true&{PREFIX}useCollisionAvoidance=true&{PREFIX}maximumRedeliveries=4"


def test_explain(cli: Any) -> None:
    """The table has the policy's own integers, with the bounds of collision avoidance."""
    data = json.loads(cli("policy", "explain", JITTER, "--destination", "orders", "--output", "json").out)
    assert data["maximum_deliveries"] == 5
    assert [row["delay_ms"] for row in data["redeliveries"]] == [1000, 5000, 25000, 125000]
    assert [row["min_delay_ms"] for row in data["redeliveries"]] == [1000, 4250, 18062, 76763]
    assert data["redeliveries"][-1]["max_elapsed_ms"] == data["worst_case_ms"] == 229918
    table = cli("policy", "explain", JITTER, "--destination", "orders").out
    assert "the default: no pattern matches" in table
    assert "after 5 failed deliveries it goes to the dead-letter queue" in table
    assert "2 min 36 s (1 min 40.075 s to 3 min 49.918 s)" in table


@pytest.mark.parametrize("factor", ["0", "0.15", "1"])
@pytest.mark.parametrize("initial", ["0", "1", "700"])
def test_bounds_hold(factor: str, initial: str) -> None:
    """No drawn delay is outside of the shown bounds."""
    uri = f"{JITTER}&{PREFIX}collisionAvoidanceFactor={factor}&{PREFIX}initialRedeliveryDelay={initial}"
    settings = parse_uri(uri)
    rows = explain(settings, uri, "orders", None).rows
    for seed in range(200):
        drawn = settings.policies.policy_for("orders").delays_ms(4, Random(seed))
        assert all(row.low <= delay <= row.high for row, delay in zip(rows, drawn, strict=True))


def test_java_uri(cli: Any) -> None:
    """A Java URI is explained: its pattern wins, its own options are notes, its password is not shown."""
    uri = (
        "failover:(tcp://bob:hunter2@a:61616,tcp://bob:hunter2@b:61616)?jms.redeliveryPolicyMap.PRICES.>."
        "maximumRedeliveries=2&jms.useAsyncSend=true&jms.redeliveryPolicyMap.PRICES.>.maximumRedeliveryDelay=10"
    )
    ended = cli("policy", "explain", uri, "--destination", "PRICES.EUR", "--redeliveries", "9")
    assert ended.code == 0
    assert "pattern queue://PRICES.>" in ended.out
    assert "3 at most" in ended.out
    assert "hunter2" not in ended.out + ended.err
    assert "bob" not in ended.out + ended.err
    notes = ended.err.splitlines()
    assert notes[0].startswith("note: jms.useAsyncSend=true")
    assert notes[1] == "note: the policy allows 2 redeliveries: 9 never happen"
    assert notes[2].startswith("note: maximumRedeliveryDelay has no effect")


@pytest.mark.parametrize(
    ("options", "then"),
    [
        (f"{PREFIX}maximumRedeliveries=-1", "redelivered for ever"),
        (f"{PREFIX}maximumRedeliveries=0", "after 1 failed delivery"),
        ("redelivery.deadLetter=discard", "accepted and dropped"),
        ("redelivery.deadLetter=ack", "the broker is told"),
        ("redelivery.deadLetter=forward", "a copy goes to the dead-letter queue"),
        ("redelivery.deadLetterDestination=lost", "a copy goes to queue://lost"),
        ("redelivery.deadLetterStrategy=individual", "the dead-letter destination of its own destination"),
        (
            "redelivery.deadLetterStrategy=individual&redelivery.queuePrefix=D.",
            "a copy goes to queue://D.orders",
        ),
        ("redelivery.deadLetterStrategy=discarding", "it is accepted and dropped"),
        (
            "redelivery.deadLetterStrategy=discarding&redelivery.discard=other",
            "it goes to the dead-letter queue",
        ),
        ("redelivery.sendToDlqIfMaxRetriesExceeded=false", "it is accepted and dropped"),
        (
            "jms.redeliveryPolicyMap.x.maximumRedeliveries=1&redelivery.fallbackToDeadLetter=false",
            "and dropped",
        ),
    ],
)
def test_what_happens_then(cli: Any, options: str, then: str) -> None:
    """The last line says what happens to a message that keeps failing."""
    ended = cli("policy", "explain", f"memory://x?{options}", "--destination", "orders")
    assert then in ended.out.splitlines()[-1]


def test_the_dead_letter_queue_of_another_projects_adapter(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an adapter of another project no dead-letter queue is named; its URI is one beside `REDELIVERY_URL`, too."""
    monkeypatch.setitem(registry._registered, "shelf", MemoryAdapter)
    monkeypatch.setenv("REDELIVERY_URL", "memory://x")
    ended = cli("policy", "explain", "shelf://x", "--destination", "orders")
    assert ended.out.splitlines()[-1].endswith("it goes to the dead-letter queue of the broker")


def test_jsonl(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line for each redelivery; the URI may come from the environment."""
    monkeypatch.setenv("REDELIVERY_URL", f"memory://x?{PREFIX}maximumRedeliveries=-1")
    lines = cli(
        "policy", "explain", "--destination", "a", "--redeliveries", "3", "--output", "jsonl"
    ).out.splitlines()
    assert [json.loads(line)["elapsed_ms"] for line in lines] == [1000, 2000, 3000]


LIMITED = f"memory://x?{PREFIX}maximumRedeliveries=-1&redelivery.policy.maximumElapsed=2500"


def test_a_limit_of_time(cli: Any) -> None:
    """The table ends with the last redelivery that can begin in time; the limit, and what follows, are shown."""
    ended = cli("policy", "explain", LIMITED, "--destination", "orders")
    assert "deliveries   3 at most: 1, and 2 redeliveries" in ended.out
    assert "time         no redelivery begins later than 2.5 s after the first failure" in ended.out
    assert "total        2 s of waiting" in ended.out
    assert ended.out.splitlines()[-1].startswith(
        "then         after 3 failed deliveries, or 2.5 s, it goes to"
    )
    data = json.loads(cli("policy", "explain", LIMITED, "--destination", "a", "--output", "json").out)
    assert (data["maximum_deliveries"], data["maximum_elapsed_ms"], data["worst_case_ms"]) == (3, 2500, 2500)
    assert len(data["redeliveries"]) == 2


@pytest.mark.parametrize(
    ("options", "deliveries", "then"),
    [
        (f"{PREFIX}redeliveryDelay=0&{PREFIX}initialRedeliveryDelay=0&{PREFIX}maximumRedeliveries=-1",
         None, "after 9 s it"),
        (f"{PREFIX}maximumRedeliveries=2", 3, "after 3 failed deliveries, or 9 s, it"),
        (f"{PREFIX}maximumRedeliveries=500&{PREFIX}redeliveryDelay=40", 202, "after 202 failed deliveries, or 9 s"),
    ],
)  # fmt: skip
def test_a_limit_of_time_beside_a_maximum(options: str, deliveries: int | None, then: str) -> None:
    """Without delays any number of redeliveries can begin in time; else the lower of both numbers is the limit."""
    settings = parse_uri(f"memory://x?redelivery.policy.maximumElapsed=9000&{options}")
    explained = explain(settings, "", "orders", None)
    assert explained.deliveries == deliveries
    assert _then(explained).startswith(then)


def test_a_list_of_delays(cli: Any) -> None:
    """A list of delays is shown with as many redeliveries."""
    uri = "memory://x?redelivery.policyMap.a.>.delays=1000,5000,30000"
    data = json.loads(cli("policy", "explain", uri, "--destination", "a.b", "--output", "json").out)
    assert (data["uri"], data["pattern"], data["maximum_deliveries"]) == (uri, "queue://a.>", 4)
    assert [row["delay_ms"] for row in data["redeliveries"]] == [1000, 5000, 30000]


@pytest.mark.ci("matplotlib: 0.5 s each")
@pytest.mark.parametrize("name", ["policy.png", "policy.svg"])
def test_plot(cli: Any, tmp_path: Path, name: str) -> None:
    """The picture is written in the format of its suffix; a destination is no formula."""
    need("matplotlib")
    ended = cli("policy", "explain", JITTER, "--destination", "a.$x_{", "--plot", name)
    assert ended.code == 0
    start = (tmp_path / name).read_bytes()[:200]
    assert start.startswith(b"\x89PNG") or b"<svg" in start or b"<?xml" in start
    for uri in (
        LIMITED,
        "memory://x?redelivery.policy.delays=1,2",
        "memory://x?redelivery.policy.maximumElapsed=1",
    ):
        assert cli("policy", "explain", uri, "--destination", "a", "--plot", name).code == 0


def test_options(cli: Any) -> None:
    """Every supported option is listed with type, default, schemes and meaning."""
    rows = json.loads(cli("policy", "options", "--output", "json").out)
    assert {
        "option": "redelivery.credit",
        "type": "integer or auto",
        "default": "auto",
        "over": "all",
        "meaning": "Messages a consumer may have unsettled, without parked ones; "
        "auto: few, more while handlers are fast.",
    } in rows
    assert "\x1b" not in cli("policy", "options").out
    assert len(cli("policy", "options", "--output", "jsonl").out.splitlines()) == len(rows)


@pytest.mark.parametrize(
    ("query", "destination", "credit"),
    [
        ("", "orders", "auto, begins with 4 (one worker), at most 1,000"),
        ("?redelivery.credit=16", "orders", "16"),
        ("?jms.prefetchPolicy.all=1500", "topic://prices", "1,500"),
        ("", "topic://prices", "1,000"),
        ("", "native:///queue/a", "1,000"),
    ],
)
def test_the_credit_is_explained(cli: Any, query: str, destination: str, credit: str) -> None:
    """The credit of a consumer of a URI is shown; that of a file is not known."""
    words = "policy", "explain", f"memory://x{query}", "--destination", destination
    assert f"credit       {credit}" in cli(*words).out.splitlines()
    assert json.loads(cli(*words, "--output", "json").out)["credit"] == credit


def test_for_people(cli: Any) -> None:
    """Durations are in words; bars are as high as their share."""
    shown = [duration(ms) for ms in (0, 999, 1600, 60_000, 125_500, 3_600_000, 90_061_001)]
    assert shown == ["0 ms", "999 ms", "1.6 s", "1 min", "2 min 5.5 s", "1 h", "1 d 1 h 1 min 1.001 s"]
    assert len(sparkline([1, 2, 8])) == 3
    assert len(sparkline([0, 0])) == 2


def test_a_multiplier_alone(cli: Any) -> None:
    """A multiplier without exponential back-off is noted to have no effect."""
    ended = cli("policy", "explain", f"memory://x?{PREFIX}backOffMultiplier=3", "--destination", "a")
    assert "note: backOffMultiplier has no effect: useExponentialBackOff is false" in ended.err


def test_options_on_a_narrow_terminal(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 80 columns no word of the list of options is broken."""
    monkeypatch.setenv("COLUMNS", "80")
    lines = cli("policy", "options").out.splitlines()
    assert "    integer, default 6, over all" in lines
    assert max(map(len, lines)) <= 80


@pytest.mark.ci("matplotlib")
@pytest.mark.parametrize(
    ("pattern", "title"), [("orders", "Policy of pattern queue://orders"), ("x", "Default policy")]
)
def test_a_picture_says_what_it_shows(cli: Any, tmp_path: Path, pattern: str, title: str) -> None:
    """It names the destination, the policy with what is not its default, and the unit of each axis."""
    matplotlib = need("matplotlib")
    options = f"jms.redeliveryPolicyMap.{pattern}.maximumRedeliveries=3"
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        ended = cli(
            "policy", "explain", f"Memory://x?{options}", "--destination", "orders", "--plot", "p.svg"
        )
    assert ended.code == 0
    drawn = (tmp_path / "p.svg").read_text()
    changed = "maximumRedeliveries=3" if pattern == "orders" else "every option as by default"
    for text in ("Redeliveries of a message of queue://orders", f"{title}: {changed}", "at most "):
        assert text in drawn
    for axis in ("delay before it (seconds)", "waited in all (seconds)", "number of the redelivery"):
        assert axis in drawn


def test_a_policy_that_rabbitmq_would_refuse(cli: Any) -> None:
    """A policy that parks a message for longer than RabbitMQ allows is noted where the broker can be RabbitMQ."""
    long = f"{PREFIX}maximumRedeliveries=30&{PREFIX}redeliveryDelay=60000"
    for uri, told in (
        (f"amqp://h?{long}", "holds a message for 1741 s, and 1440 s may be delays"),
        (f"stomp://h?{PREFIX}maximumRedeliveries=-1", "holds a message without end"),
        (f"amqp://h?{long}&redelivery.scheduler=broker", None),
        (f"amqp://h?{long}&redelivery.broker=artemis", None),
        (f"memory://x?{long}", None),
        ("amqp://h", None),
    ):
        err = cli("policy", "explain", uri, "--destination", "orders").err
        assert ("a consumer on RabbitMQ is refused" in err) is (told is not None)
        assert (told or "") in err

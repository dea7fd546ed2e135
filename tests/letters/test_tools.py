"""The tools of a dead-letter queue, on memory and in virtual time."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

import redelivery
from redelivery.core.redrive import REDRIVE_RUN
from redelivery.letters.report import Redriven
from redelivery.testing import ManualClock, MemoryBroker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redelivery import DeadLetterQueue

DLQ = "queue://DLQ"
EPOCH = datetime.fromtimestamp(0, UTC)


@pytest.fixture
def broker() -> Iterator[MemoryBroker]:
    """A broker whose time passes whenever nothing else can happen."""
    clock = ManualClock(auto_advance=True)
    with MemoryBroker("letters", clock=clock) as broker:
        yield broker


@pytest.fixture
def tools(broker: MemoryBroker) -> Iterator[DeadLetterQueue]:
    """The tools, connected."""
    with redelivery.dead_letters(broker.uri) as tools:
        yield tools


def bury(broker: MemoryBroker, body: str | bytes = "x", **headers: Any) -> str:
    """Put a dead letter on the queue; return its id. `origin`, `cause` and so on: the library's own properties."""
    names = {
        "origin": "redeliveryOriginalDestination",
        "cause": "redeliveryCause",
        "first": "redeliveryOriginalId",
    }
    return broker.send("DLQ", body, headers={names.get(name, name): value for name, value in headers.items()})


def test_what_is_listed(broker: MemoryBroker, tools: DeadLetterQueue) -> None:
    """Each tells where it came from, why it died and when; what nobody has told is unknown."""
    bury(
        broker, "a", origin="queue://orders", cause="ValueError: 7", first="one", redeliveryCount="6",
        redeliveryLastFailure="2026-11-22T10:00:00.000Z", redeliveryRedrives="2",
    )  # fmt: skip
    identity = bury(
        broker, b"\xff", redeliveryCount="six", redeliveryLastFailure="then", redeliveryRedrives="-"
    )
    told, untold = tools
    assert (told.original_destination, told.cause, told.cause_kind) == (
        "queue://orders",
        "ValueError: 7",
        "ValueError",
    )
    assert (told.original_id, told.redelivery_count, told.redrives) == ("one", 6, 2)
    assert (told.died_at, told.day) == (datetime(2026, 11, 22, 10, tzinfo=UTC), "2026-11-22")
    assert (untold.message_id, untold.original_id) == (identity, identity)
    assert (untold.original_destination, untold.cause, untold.redelivery_count) == (None, "unknown", None)
    assert (untold.redrives, untold.body, untold.topic) == (0, b"\xff", False)
    assert [message.broker_count for message in broker.dead_letters()] == [0, 0], "looking is not a delivery"
    assert tools.show("one").body == b"a"
    with pytest.raises(redelivery.AdapterError, match="no dead letter 'none' in queue://DLQ"):
        tools.show("none")


def test_causes_that_somebody_else_remembers(broker: MemoryBroker) -> None:
    """`cause_of` is asked for those that carry none, with where they came from and their id."""
    asked: list[tuple[str, str]] = []

    def cause_of(destination: str, message_id: str, /) -> str | None:
        asked.append((destination, message_id))
        return "crash"

    bury(broker, cause="ValueError")
    identity = bury(broker, origin="queue://orders")
    with redelivery.dead_letters(broker.uri, cause_of=cause_of) as tools:
        assert [letter.cause for letter in tools] == ["ValueError", "crash"]
    assert asked == [("queue://orders", identity)]


def test_the_summary(broker: MemoryBroker, tools: DeadLetterQueue) -> None:
    """Counted by origin, type of the cause, and day; the most first; more than one window of them."""
    for number in range(2500):
        bury(broker, origin="queue://orders", cause=f"ValueError: {number}")
    bury(broker, origin="queue://bills", cause="crash", redeliveryLastFailure="2026-11-21T23:59:59Z")
    groups = tools.summary()
    assert [(g.original_destination, g.cause, g.count) for g in groups] == [
        ("queue://orders", "ValueError", 2500),
        ("queue://bills", "crash", 1),
    ]
    assert groups[1].day == "2026-11-21"


def test_filters(broker: MemoryBroker, tools: DeadLetterQueue) -> None:
    """By cause, origin, id and age, alone and together; a pattern where it has a star."""
    now = datetime.fromtimestamp(broker._hub.clock.time(), UTC).isoformat()
    bury(
        broker,
        "a",
        origin="queue://orders.eu",
        cause="ValueError: 1",
        first="A",
        redeliveryLastFailure=now,
    )
    bury(
        broker,
        "b",
        origin="queue://orders.us",
        cause="KeyError: 'x'",
        redeliveryLastFailure=EPOCH.isoformat(),
    )
    bury(broker, "c", cause="ValueErrors", redeliveryLastFailure=EPOCH.isoformat())
    for filters, bodies in (
        ({"cause": "ValueError"}, "a"),
        ({"cause": "ValueError*"}, "ac"),
        ({"cause": ["ValueError", "KeyError: 'x'"]}, "ab"),
        ({"destination": "orders.eu"}, "a"),
        ({"destination": "queue://orders.*"}, "ab"),
        ({"destination": "unknown"}, "c"),
        ({"id": "A"}, "a"),
        ({"older_than": 3600}, "bc"),
        ({"younger_than": 3600}, "a"),
        ({"younger_than": 3600, "cause": "KeyError"}, ""),
        ({}, "abc"),
    ):
        found: Any = filters
        assert "".join(letter.body.decode() for letter in tools.list(**found)) == bodies, filters


def test_bad_filters(tools: DeadLetterQueue) -> None:
    """One sentence each, before anything is read."""
    wrong: Any
    for wrong, error, text in (
        ({"causes": "x"}, TypeError, "'causes'; did you mean 'cause'"),
        ({"cause": ""}, redelivery.ConfigurationError, "cause must be text"),
        ({"id": [7]}, redelivery.ConfigurationError, "id must be text, not 7"),
        ({"older_than": -1}, redelivery.ConfigurationError, "older_than"),
        ({"older_than": 60, "younger_than": 60}, redelivery.ConfigurationError, "leave no dead letter"),
    ):
        with pytest.raises(error, match=text):
            tools.list(**wrong)


def test_back_to_where_they_came_from(broker: MemoryBroker, tools: DeadLetterQueue) -> None:
    """As they were, with their first id; each told how many; the others stay, uncounted."""
    bury(broker, "a", origin="queue://orders", cause="ValueError: 1", first="A", nr=1, redeliveryCount="6")
    own = bury(broker, "b", origin="queue://bills", cause="ValueError: 2")
    bury(broker, "c", origin="queue://bills", cause="KeyError")
    told: list[int] = []
    expected = {"queue://orders": 1, "queue://bills": 1}
    planned = tools.redrive(cause="ValueError", dry_run=True)
    assert planned == Redriven(2, expected, skipped=1, dry_run=True)
    assert broker.depth("DLQ") == 3
    assert tools.redrive(cause="ValueError", told=told.append) == Redriven(2, expected, skipped=1)
    assert told == [1, 2]
    (order,), (bill,), (left,) = broker.messages("orders"), broker.messages("bills"), broker.dead_letters()
    run = order.headers[REDRIVE_RUN]
    assert order.headers == {
        "nr": 1,
        "redeliveryOriginalId": "A",
        "redeliveryRedrives": "1",
        REDRIVE_RUN: run,
    }
    assert (order.text, order.persistent, bill.headers["redeliveryOriginalId"]) == ("a", True, own)
    assert left.text == "c"


def test_dead_again(broker: MemoryBroker, tools: DeadLetterQueue) -> None:
    """A message that dies again keeps its first id and its number of redrives; the third time it goes to quarantine."""
    policies = redelivery.RedeliveryPolicyMap(default=redelivery.RedeliveryPolicy(maximum_redeliveries=0))
    identity = broker.send("orders", "bad")
    with redelivery.connect(broker.uri, policies=policies) as connection:
        consumer = connection.consumer("orders")
        for times in range(3):
            message = consumer.receive(timeout=5)
            assert message is not None
            message.fail("no")
            (letter,) = tools
            assert (letter.original_id, letter.redrives) == (identity, times)
            done = tools.redrive(quarantine="quarantine", maximum_redrives=2)
            assert (done.redriven, done.quarantined) == (1, times == 2)
    (held,) = broker.messages("quarantine")
    assert held.headers["redeliveryOriginalId"] == identity


def test_a_consumer_that_fails_at_once_does_not_make_it_circle(
    broker: MemoryBroker, tools: DeadLetterQueue
) -> None:
    """What dies again while the redrive runs is left for the next one."""
    policies = redelivery.RedeliveryPolicyMap(default=redelivery.RedeliveryPolicy(maximum_redeliveries=0))
    bury(broker, origin="queue://orders")
    with redelivery.connect(broker.uri, policies=policies) as connection:

        @connection.listen("orders")
        def handle(message: redelivery.Message) -> None:
            raise ValueError("never")

        connection.start()
        done = tools.redrive()
    assert (done.redriven, done.again, done.complete) == (1, 1, True)
    assert broker.depth("DLQ") == 1


def test_what_is_left(broker: MemoryBroker, tools: DeadLetterQueue) -> None:
    """Without an origin, from a topic, or from this queue itself: left, and counted, unless told otherwise."""
    bury(broker, "nowhere")
    bury(broker, "topic", origin="topic://prices")
    bury(broker, "circle", origin=DLQ)
    done = tools.redrive()
    assert (done.redriven, done.without_origin, done.topics, done.complete) == (0, 2, 1, False)
    assert tools.redrive(topics=True).destinations == {"topic://prices": 1}
    assert tools.redrive(to="other").destinations == {"queue://other": 2}
    assert broker.depth("DLQ") == 0


def test_never_back_to_itself(tools: DeadLetterQueue) -> None:
    """Neither `to` nor the quarantine may be the dead-letter queue; other nonsense is refused likewise."""
    wrong: Any
    for wrong, text in (
        ({"to": "DLQ"}, "to=DLQ is the dead-letter queue itself"),
        ({"quarantine": "queue://DLQ"}, "quarantine=queue://DLQ is the dead-letter queue itself"),
        ({"rate": 0}, "rate must be more than 0"),
        ({"maximum_redrives": 0}, "maximum_redrives must be 1 or more"),
    ):
        with pytest.raises(redelivery.ConfigurationError, match=text):
            tools.redrive(**wrong)


def test_the_rate(broker: MemoryBroker, tools: DeadLetterQueue) -> None:
    """Ten at 5 a second take 1.8 s, and 2 s of silence at the end."""
    for _ in range(10):
        bury(broker, origin="queue://orders")
    began = broker._hub.clock.monotonic()
    assert tools.redrive(rate=5).redriven == 10
    assert broker._hub.clock.monotonic() - began == pytest.approx(3.8, abs=0.01)


def test_a_refused_copy(broker: MemoryBroker, tools: DeadLetterQueue) -> None:
    """After three tries it ends with what the broker said; nothing is lost."""
    bury(broker, origin="queue://orders.>")
    with pytest.raises(
        redelivery.AdapterError, match=r"cannot be sent to queue://orders\.>: memory:// cannot send"
    ):
        tools.redrive()
    assert broker.depth("DLQ") == 1


def test_a_lost_connection(broker: MemoryBroker) -> None:
    """It goes on over the next one: nothing is missing, nothing twice."""
    for number in range(50):
        bury(broker, str(number), origin="queue://orders")
    cuts = iter([10, 25, 40])
    at = next(cuts)

    def told(done: int) -> None:
        nonlocal at
        if done == at:
            broker.cut()
            at = next(cuts, -1)

    with redelivery.dead_letters(broker.uri) as tools:
        tools.redrive(told=told)
    assert sorted(int(held.text) for held in broker.messages("orders")) == list(range(50))
    assert broker.depth("DLQ") == 0


def test_purge(broker: MemoryBroker, tools: DeadLetterQueue) -> None:
    """What is meant is gone, the rest is there."""
    bury(broker, cause="ValueError")
    bury(broker, cause="KeyError")
    assert (tools.purge(cause="KeyError", dry_run=True).purged, broker.depth("DLQ")) == (1, 2)
    done = tools.purge(cause="KeyError")
    assert (done.purged, done.skipped, done.complete) == (1, 1, True)
    assert [held.cause for held in broker.dead_letters()] == ["ValueError"]
    assert tools.purge().purged == 1


def test_taking(broker: MemoryBroker) -> None:
    """Reading by taking gives everything back, and ends when nothing has come for a while."""
    for number in range(300):
        bury(broker, str(number))
    with redelivery.dead_letters(broker.uri, take=True) as tools:
        assert [int(letter.body) for letter in tools] == list(range(300))
        assert len(list(tools)) == 300
    assert broker.depth("DLQ") == 300


def test_exports(broker: MemoryBroker, tools: DeadLetterQueue) -> None:
    """JSON Lines, with bodies that are no text in base 64; another format is refused."""
    bury(broker, "text", cause="ValueError: 1", nr=7)
    bury(broker, b"\xff")
    out = io.BytesIO()
    assert tools.export(out) == 2
    first, second = (json.loads(line) for line in out.getvalue().splitlines())
    assert (first["body"], first["cause"], first["headers"]["nr"]) == ("text", "ValueError: 1", 7)
    assert second["body_base64"] == "/w=="
    with pytest.raises(redelivery.ConfigurationError, match="jsonl or parquet"):
        tools.export(out, "csv")


def test_parquet(broker: MemoryBroker, tools: DeadLetterQueue) -> None:
    """By pyarrow, where it is installed."""
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    bury(broker, b"\xff", cause="ValueError: 1", nr=7)
    out = io.BytesIO()
    assert tools.export(out, "parquet") == 1
    (row,) = parquet.read_table(io.BytesIO(out.getvalue())).to_pylist()
    assert (row["body"], row["cause"]) == (b"\xff", "ValueError: 1")

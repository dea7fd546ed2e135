"""The tools of a dead-letter queue, on memory and in virtual time."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from tests.needs import need

import redelivery

if TYPE_CHECKING:
    from redelivery import DeadLetterQueue
    from redelivery.testing import MemoryBroker

EPOCH = datetime.fromtimestamp(0, UTC)


def test_what_is_listed(broker: MemoryBroker, tools: DeadLetterQueue, bury: Any) -> None:
    """Each dead letter has origin, cause and time; a value that is not recorded is unknown."""
    bury("a", origin="queue://orders", cause="ValueError: 7", first="one", redeliveryCount="6",
        redeliveryLastFailure="2026-11-22T10:00:00.000Z", redeliveryRedrives="2",
    )  # fmt: skip
    identity = bury(b"\xff", redeliveryCount="six", redeliveryLastFailure="then", redeliveryRedrives="-")
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


def test_causes_that_somebody_else_remembers(broker: MemoryBroker, bury: Any) -> None:
    """`cause_of` is called for dead letters without a cause, with their origin and id."""
    asked: list[tuple[str, str]] = []

    def cause_of(destination: str, message_id: str, /) -> str | None:
        asked.append((destination, message_id))
        return "crash"

    bury(cause="ValueError")
    identity = bury(origin="queue://orders")
    with redelivery.dead_letters(broker.uri, cause_of=cause_of) as tools:
        assert [letter.cause for letter in tools] == ["ValueError", "crash"]
    assert asked == [("queue://orders", identity)]


def test_the_summary(broker: MemoryBroker, tools: DeadLetterQueue, bury: Any) -> None:
    """The summary counts by origin, type of the cause, and day, the most first, over several windows."""
    for number in range(2500):
        bury(origin="queue://orders", cause=f"ValueError: {number}")
    bury(origin="queue://bills", cause="crash", redeliveryLastFailure="2026-11-21T23:59:59Z")
    groups = tools.summary()
    assert [(g.original_destination, g.cause, g.count) for g in groups] == [
        ("queue://orders", "ValueError", 2500),
        ("queue://bills", "crash", 1),
    ]
    assert groups[1].day == "2026-11-21"


def test_filters(broker: MemoryBroker, tools: DeadLetterQueue, bury: Any) -> None:
    """Filters match by cause, origin, id and age, alone and together; a star makes a pattern."""
    now = datetime.fromtimestamp(broker._server.clock.time(), UTC).isoformat()
    bury(
        "a",
        origin="queue://orders.eu",
        cause="ValueError: 1",
        first="A",
        redeliveryLastFailure=now,
    )
    bury(
        "b",
        origin="queue://orders.us",
        cause="KeyError: 'x'",
        redeliveryLastFailure=EPOCH.isoformat(),
    )
    bury("c", cause="ValueErrors", redeliveryLastFailure=EPOCH.isoformat())
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


def test_an_empty_filter_means_none(broker: MemoryBroker, tools: DeadLetterQueue, bury: Any) -> None:
    """A filter without values matches no dead letter, in every tool; None is no filter."""
    bury("a", origin="queue://orders", cause="ValueError")
    for name in ("id", "cause", "destination"):
        none: Any = {name: []}
        assert (list(tools.list(**none)), list(tools.summary(**none))) == ([], [])
        for dry_run in (True, False):
            assert tools.redrive(dry_run=dry_run, **none).redriven == 0
            assert tools.purge(dry_run=dry_run, **none).purged == 0
        assert tools.export(io.BytesIO(), **none) == 0
    assert broker.depth("DLQ") == 1
    assert tools.purge(id=None, cause=None, destination=None).purged == 1


def test_bad_filters(tools: DeadLetterQueue) -> None:
    """A wrong filter is one sentence, before anything is read."""
    wrong: Any
    for wrong, error, text in (
        ({"causes": "x"}, TypeError, "'causes'; did you mean 'cause'"),
        ({"cause": ""}, redelivery.ConfigurationError, "cause must be text"),
        ({"id": [7]}, redelivery.ConfigurationError, "id must be text, not 7"),
        ({"cause": ValueError}, redelivery.ConfigurationError, "cause is text: write cause='ValueError'"),
        ({"older_than": -1}, redelivery.ConfigurationError, "older_than"),
        ({"older_than": 60, "younger_than": 60}, redelivery.ConfigurationError, "leave no dead letter"),
    ):
        with pytest.raises(error, match=text):
            tools.list(**wrong)


def test_taking(broker: MemoryBroker, bury: Any) -> None:
    """Reading by receiving releases everything, and ends after a time without a message."""
    for number in range(300):
        bury(str(number))
    with redelivery.dead_letters(broker.uri, take=True) as tools:
        assert [int(letter.body) for letter in tools] == list(range(300))
        assert len(list(tools)) == 300
    assert broker.depth("DLQ") == 300


def test_exports(broker: MemoryBroker, tools: DeadLetterQueue, bury: Any) -> None:
    """An export writes JSON Lines, with base 64 for bodies that are no text; another format is refused."""
    bury("text", cause="ValueError: 1", nr=7)
    bury(b"\xff")
    out = io.BytesIO()
    assert tools.export(out) == 2
    first, second = (json.loads(line) for line in out.getvalue().splitlines())
    assert (first["body"], first["cause"], first["headers"]["nr"]) == ("text", "ValueError: 1", 7)
    assert second["body_base64"] == "/w=="
    with pytest.raises(redelivery.ConfigurationError, match="jsonl or parquet"):
        tools.export(out, "csv")


def test_parquet(broker: MemoryBroker, tools: DeadLetterQueue, bury: Any) -> None:
    """An export writes Parquet, where pyarrow is installed."""
    parquet = need("pyarrow.parquet")
    bury(b"\xff", cause="ValueError: 1", nr=7)
    out = io.BytesIO()
    assert tools.export(out, "parquet") == 1
    (row,) = parquet.read_table(io.BytesIO(out.getvalue())).to_pylist()
    assert (row["body"], row["cause"]) == (b"\xff", "ValueError: 1")


def test_outside_of_with() -> None:
    """A dead-letter queue is read inside of `with redelivery.dead_letters(...)`, and the error says so."""
    letters = redelivery.dead_letters("memory://unopened")
    cure = "use it inside `with redelivery.dead_letters"
    with pytest.raises(redelivery.ConfigurationError, match=f"not open yet; {cure}"):
        list(letters.list())
    with letters:
        assert list(letters.list()) == []
    with pytest.raises(redelivery.ConfigurationError, match=f"closed; {cure}"):
        list(letters.list())

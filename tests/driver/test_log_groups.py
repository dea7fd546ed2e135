"""Log lines in a storm of failures, and what each line has beside its text."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.driver.twins import eventually

from redelivery import RedeliveryPolicy, RedeliveryPolicyMap
from redelivery.driver.event_log import FIRST_LINES, WINDOW, GroupKey, LogGroup, LogGroups
from redelivery.logs import JsonFormatter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.driver.twins import Twin

OFF = "?redelivery.breaker=off"


class DbDown(Exception):
    """Failure because the database is down."""


class Kept(logging.Handler):
    """Log handler that keeps lines as JSON."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonFormatter())
        self.lines: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(json.loads(self.format(record)))


@pytest.fixture
def kept() -> Iterator[Kept]:
    """Return a log handler of the library's logger."""
    log, handler = logging.getLogger("redelivery"), Kept()
    before = log.level
    log.setLevel(logging.INFO)
    log.addHandler(handler)
    yield handler
    log.removeHandler(handler)
    log.setLevel(before)


def down(_: object) -> None:
    """Fail as in an outage."""
    raise DbDown("no route")


def send(twin: Twin, count: int) -> None:
    """Send messages to one queue."""
    for number in range(count):
        twin.broker.send("orders", str(number))


def failures(kept: Kept) -> list[str]:
    """Return the lines about failures."""
    return [x["message"] for x in kept.lines if "DbDown" in x["message"]]


def test_a_storm_is_a_few_lines_and_then_one_every_ten_seconds(twin: Twin, kept: Kept) -> None:
    """A storm is ten lines, then one every ten seconds with the number of others, and one at the end."""
    policies = RedeliveryPolicyMap(default=RedeliveryPolicy(redelivery_delay=4, maximum_redeliveries=-1))
    connection = twin.connect(OFF, policies=policies)
    twin.listen(connection, "orders", down)
    send(twin, 100)
    eventually(twin, lambda: connection.report().redelivered >= 100)
    assert len(failures(kept)) == FIRST_LINES
    twin.advance(3 * WINDOW)
    lines = failures(kept)[FIRST_LINES:]
    assert lines
    assert all("more in" in line and "delivery failed (DbDown), redelivery" in line for line in lines)
    assert len(lines) <= 4
    twin.call(connection.close())
    counted = sum(x["redelivery"]["count"] for x in kept.lines if x["redelivery"].get("event") == "grouped")
    assert counted + FIRST_LINES == connection.report().redelivered


def test_a_group_says_when_its_last_line_was() -> None:
    """The last line of a storm that has ended says how long ago; one of a storm that goes on does not."""
    key = GroupKey("queue://orders", "delivery failed", "DbDown", "redelivery", logging.WARNING)
    group = LogGroup(key, 100.0, 0, more=189, last=103.0)
    assert group.text(112.0) == (
        "queue://orders: 189 more in 12 s, the last one 9 s ago: delivery failed (DbDown), redelivery"
    )
    group.last = 111.5
    assert group.text(112.0) == "queue://orders: 189 more in 12 s: delivery failed (DbDown), redelivery"


def test_dead_letters_are_lines_of_their_own(twin: Twin, kept: Kept) -> None:
    """Dead letters are a line each, up to ten a second; a line about more names three of them."""
    policies = RedeliveryPolicyMap(default=RedeliveryPolicy(maximum_redeliveries=0))
    connection = twin.connect(OFF, policies=policies)
    twin.listen(connection, "orders", down)
    send(twin, 120)
    eventually(twin, lambda: connection.report().poisoned == 120)
    twin.call(connection.close())
    lines = failures(kept)
    assert len(lines) == 101
    assert "20 more in" in lines[-1]
    [grouped] = [x["redelivery"] for x in kept.lines if x["redelivery"].get("event") == "grouped"]
    assert (grouped["count"], len(grouped["message_ids"])) == (20, 3)


def test_every_line_is_written_where_that_is_asked_for(twin: Twin, kept: Kept) -> None:
    """With `redelivery.logEach=true` every line is written."""
    connection = twin.connect(f"{OFF}&redelivery.logEach=true")
    twin.listen(connection, "orders", down)
    send(twin, 50)
    eventually(twin, lambda: connection.report().redelivered >= 50)
    assert len([x for x in failures(kept) if "delivery 1 of" in x]) == 50


def test_a_line_has_its_fields(twin: Twin, kept: Kept) -> None:
    """A line has its event's fields; one about a message also has its decision; the logger shows the subject."""
    connection = twin.connect()
    twin.listen(connection, "orders", down)
    send(twin, 1)
    eventually(twin, lambda: connection.report().redelivered)
    [connected] = [x for x in kept.lines if x["message"].startswith("connected to")]
    assert (connected["logger"], connected["level"]) == ("redelivery.connection", "INFO")
    assert (connected["redelivery"]["event"], connected["redelivery"]["again"]) == ("connected", False)
    [failed] = [x for x in kept.lines if "DbDown" in x["message"]]
    assert failed["logger"] == "redelivery.messages"
    fields = failed["redelivery"]
    assert fields["message_id"]
    wanted = (
        "event",
        "destination",
        "outcome",
        "verdict",
        "delivery_count",
        "maximum",
        "cause_type",
        "delay",
    )
    assert [fields[name] for name in wanted] == [
        "finished", "queue://orders", "redelivered", "failed", 1, 7, "DbDown", 1.0,
    ]  # fmt: skip


def test_a_traceback_is_a_part_of_the_line() -> None:
    """A traceback is a part of the line, also in another library's record."""
    try:
        down(None)
    except DbDown:
        import sys  # noqa: PLC0415

        record = logging.LogRecord("other", logging.ERROR, "x.py", 1, "it %s", ("broke",), sys.exc_info())
    line = json.loads(JsonFormatter().format(record))
    assert (line["logger"], line["level"], line["message"]) == ("other", "ERROR", "it broke")
    assert "DbDown: no route" in line["exception"]
    assert "redelivery" not in line
    assert line["time"].endswith("+00:00")


@given(st.lists(st.tuples(st.floats(0, 5), st.integers(0, 2)), max_size=300))
def test_no_line_is_lost_from_the_counts(steps: list[tuple[float, int]]) -> None:
    """Written and counted lines are all the lines; a group never counts none."""
    groups, now, written, counted = LogGroups(), 0.0, 0, 0
    for step, which in steps:
        now += step
        for group in groups.ended(now) if groups.due(now) else ():
            assert group.more > 0
            counted += group.more
        written += groups.admits(_event(which), logging.WARNING, now)
    counted += sum(group.more for group in groups.ended(now, last=True))
    assert written + counted == len(steps)


def _event(which: int) -> Any:
    class Result:
        destination, verdict, outcome, message_id = "queue://orders", "failed", "redelivered", "ID:1"
        cause_type, next_step = f"Error{which}", "redelivery" if which else "poison acknowledgement"

    return Result


def test_groups_are_bounded() -> None:
    """Past a thousand groups every line is written."""
    groups = LogGroups()
    for number in range(1100):
        event = _event(1)
        event.cause_type = f"Error{number}"
        for _ in range(FIRST_LINES + 1):
            groups.admits(event, logging.WARNING, 0.0)
    event = _event(1)
    event.cause_type = "Error1099"
    assert groups.admits(event, logging.WARNING, 0.0)
    event.cause_type = "Error1"
    assert not groups.admits(event, logging.WARNING, 0.0)
    assert GroupKey.of(event, logging.WARNING).cause_type == "Error1"


def test_a_group_that_has_ended_is_not_kept() -> None:
    """A group without new lines is dropped: a long-running program has many causes, one after the other."""
    groups = LogGroups()
    groups.admits(_event(1), logging.WARNING, 0.0)
    assert list(groups.ended(WINDOW)) == []
    assert groups._groups == {}
    assert not groups.due(10 * WINDOW)

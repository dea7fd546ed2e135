"""Properties that no library wrote: each counts as absent, and its dead letter stays usable."""

from __future__ import annotations

import io
import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.matrix import some
from tests.needs import need

from redelivery.core.dead_lettering.dead_letter_headers import count_in, moment, time_in

if TYPE_CHECKING:
    from redelivery import DeadLetterQueue
    from redelivery.testing import MemoryBroker

NAMES = [
    "redeliveryCause", "redeliveryCount", "redeliveryOriginalId", "redeliveryFirstFailure", "redeliveryLastFailure",
    "redeliveryRedrives", "redeliveryRedriveRun", "redeliveryOriginalDeliveryMode", "dlqDeliveryFailureCause", "mine",
]  # fmt: skip
DEEP: Any = "x"
for _ in range(5000):
    DEEP = [DEEP]
VALUES: list[Any] = [
    "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "9999-99-99", "9" * 5000, "-3", "inf", "\udc80",
    "a\0b\x1b[2J", "x" * 100_000, float("inf"), float("-inf"), float("nan"), -1, -0.5, 10**5000, True, None, b"\xff\0",
    {"a": 1}, {b"\xff": {1: [float("nan")]}}, {(1, 2): 3}, [1, [2]], DEEP, object(),
]  # fmt: skip
CASES = list(itertools.product(NAMES, VALUES))


def named(value: object) -> str:
    """Return the name of a case: of a property, or of its value's type."""
    return str(value) if value in NAMES else type(value).__name__


@pytest.mark.parametrize(
    ("name", "value"),
    some(CASES, CASES[::5], spread=True),
    ids=named,
)
def test_one_absurd_property(
    broker: MemoryBroker, tools: DeadLetterQueue, bury: Any, name: str, value: Any
) -> None:
    """A senseless property stops no tool: each lists, counts, writes, redrives and purges the dead letter."""
    for _ in range(2):
        bury("before", origin="queue://orders", cause="ValueError: 1")
        bury("odd", **{"origin": "queue://orders", name: value})
        bury("behind", origin="queue://orders", cause="ValueError: 2")
        letters = list(tools)
        assert [one.body for one in letters] == [b"before", b"odd", b"behind"]
        assert tools.show(str(letters[1].message_id)).body == b"odd"
        assert sum(group.count for group in tools.summary()) == tools.contents().count == 3
        file = io.BytesIO()
        assert tools.export(file) == 3
        assert [json.loads(line)["body"] for line in file.getvalue().splitlines()] == [
            "before",
            "odd",
            "behind",
        ]
        assert tools.redrive().redriven == 3
        assert broker.depth("DLQ") == 0
    bury("odd", **{name: value})
    assert tools.purge(older_than=0).purged == 1


def test_parquet(tools: DeadLetterQueue, bury: Any) -> None:
    """A Parquet file takes senseless properties as well."""
    need("pyarrow")
    for name in NAMES:
        for value in VALUES:
            bury("odd", **{name: value})
    assert tools.export(io.BytesIO(), "parquet") == len(NAMES) * len(VALUES)


@pytest.mark.parametrize(("value", "count"), [
    ("7", 7), (7, 7), (7.0, 7), ("0", 0), ("-1", None), (-1, None), (7.5, None), (float("inf"), None),
    (float("nan"), None), ("9" * 5000, None), (10**30, None), (True, None), ("\u0663", None), ("1_0", None), ({}, None),
])  # fmt: skip
def test_counts(value: Any, count: int | None) -> None:
    """Counts are whole numbers of 0 or more that a counter can have, as number or text."""
    assert count_in({"n": value}, "n") == count


def test_times() -> None:
    """Times are read in UTC; without a zone they are UTC."""
    for text, told in (
        ("2026-11-22T10:00:00Z", "2026-11-22T10:00:00+00:00"),
        ("2026-11-22T10:00:00+02:00", "2026-11-22T08:00:00+00:00"),
        ("2026-11-22T10:00:00", "2026-11-22T10:00:00+00:00"),
    ):
        found = time_in({"t": text}, "t")
        assert found is not None
        assert found.isoformat() == told
    for absurd in ("0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "never", 7, None):
        assert time_in({"t": absurd}, "t") is None
    assert (moment(None), moment(1e300), moment(float("nan"))) == (None, None, None)

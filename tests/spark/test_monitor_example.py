"""The part of `examples/spark_monitor.py` without a query: reading a report, and its alarms."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.spark.query import Query

    from redelivery.testing import MemoryBroker

EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "spark_monitor.py"))
WELL = {"waiting": 0, "deadLettered": 0, "ahead": 0, "connected": 1}


def test_what_the_source_reports_is_read(
    make_query: Callable[..., Query], redelivery_broker: MemoryBroker
) -> None:
    """The four numbers are those of the report of a running query."""
    redelivery_broker.send("orders", "one")
    query = make_query()
    query.drain()
    report = query.start().report()
    assert EXAMPLE["reported"](json.dumps(report)) == WELL


@pytest.mark.parametrize("said", [None, "null", "", "3", '{"orders": {"0": 12}}'])
def test_another_source_is_left_out(said: str | None) -> None:
    """An offset of another source has no numbers."""
    assert EXAMPLE["reported"](said) == {}


@pytest.mark.parametrize(
    ("reports", "alarms"),
    [
        ([WELL], []),
        ([WELL, {**WELL, "connected": 0}], ["there is no connection to the broker"]),
        ([{**WELL, "waiting": each} for each in range(5)], []),
        (
            [{**WELL, "waiting": each} for each in range(6)],
            ["5 messages wait for a redelivery, more at each report"],
        ),
        ([{**WELL, "waiting": each} for each in (0, 1, 2, 3, 4, 4)], []),
    ],
)
def test_what_is_wrong(reports: list[dict[str, Any]], alarms: list[str]) -> None:
    """A lost connection is an alarm at once; a backlog is one when each of five reports has more than the last."""
    assert EXAMPLE["alarms"](reports) == alarms

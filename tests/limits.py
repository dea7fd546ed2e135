"""Limits of time for each test: one that hangs fails, and the run goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.tiers import kind_of, runs_all_of

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["seconds_of"]

UNIT, INTEGRATION, SPARK = 60, 300, 600
LONGER = 3
"""Factor for tests with brokers where a run takes all of their kind: they kill, cut and send more often."""


def seconds_of(path: Path) -> int:
    """Return the most seconds for a test of this file, with its fixtures: ten times those on an idle machine.

    A test with a marker `timeout` of its own has that one.
    """
    if "integration" not in path.parts[-3:]:
        return UNIT
    return SPARK if path.name.startswith("test_spark") else INTEGRATION


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test its limit, which pytest-timeout watches by SIGALRM: the test fails, and the run goes on."""
    for item in items:
        if item.get_closest_marker("timeout") is None:
            seconds = seconds_of(item.path)
            longer = seconds > UNIT and runs_all_of(kind_of(item))
            item.add_marker(pytest.mark.timeout(seconds * LONGER if longer else seconds))

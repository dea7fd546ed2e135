"""Limits of time for each test: one that hangs fails, and the run goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["seconds_of"]

UNIT, INTEGRATION, SPARK = 60, 300, 600


def seconds_of(path: Path) -> int:
    """Return the most seconds for a test of this file, with its fixtures; a busy machine needs a tenth of them.

    A test with a marker `timeout` of its own has that one.
    """
    if "integration" not in path.parts[-3:]:
        return UNIT
    return SPARK if path.name.startswith("test_spark") else INTEGRATION


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test its limit, which pytest-timeout watches by SIGALRM: the test fails, and the run goes on."""
    for item in items:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(seconds_of(item.path)))

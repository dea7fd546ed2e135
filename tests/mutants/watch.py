"""Plugin for pytest: writes the running test, or the first one that failed, to the file `MUTANTS_WATCH`.

Property tests draw as many examples as usual, and stop at the first that fails: the search for a simpler one is slow.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, Phase, settings

if TYPE_CHECKING:
    import pytest

FILE = Path(os.environ["MUTANTS_WATCH"])

settings.register_profile(
    "mutants",
    max_examples=25,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.generate],
)


def pytest_runtest_logstart(nodeid: str) -> None:
    """Write the test that begins."""
    FILE.write_text(nodeid, encoding="utf-8")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Write a test that failed, also in its fixtures: pytest ends after it."""
    if report.failed:
        FILE.write_text(report.nodeid, encoding="utf-8")


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Write a file with tests that cannot be loaded."""
    if report.failed:
        FILE.write_text(report.nodeid, encoding="utf-8")

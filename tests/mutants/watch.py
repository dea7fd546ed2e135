"""Plugin for pytest: writes to the file `MUTANTS_WATCH` which test runs, or which one was the first to fail.

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
    """A test begins."""
    FILE.write_text(nodeid, encoding="utf-8")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A test has failed, also in its fixtures: pytest ends after it."""
    if report.failed:
        FILE.write_text(report.nodeid, encoding="utf-8")


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """A file with tests cannot be loaded."""
    if report.failed:
        FILE.write_text(report.nodeid, encoding="utf-8")

"""Plugin for pytest: writes the running test and its tier to the file `MUTANTS_WATCH`.

pytest ends after the first test that fails, in its fixtures also: it is the last one that is written.

Property tests draw as many examples as usual, and stop at the first that fails: the search for a simpler one is slow.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import Phase, settings
from tests.tiers import TIERS, tier_of

FILE = Path(os.environ["MUTANTS_WATCH"])


@pytest.hookimpl(trylast=True)
def pytest_configure() -> None:
    """Draw the tier's examples (tests/tiers.py), and stop at the first that fails."""
    phases = [Phase.explicit, Phase.generate]
    settings.register_profile("mutants", settings(), database=None, phases=phases)
    settings.load_profile("mutants")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    """Write the test that begins."""
    FILE.write_text(f"{item.nodeid}\n{tier_of(item)[0]}", encoding="utf-8")


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Write a file with tests that cannot be loaded: each tier loads it."""
    if report.failed:
        FILE.write_text(f"{report.nodeid}\n{TIERS[0]}", encoding="utf-8")

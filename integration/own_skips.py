"""A test that skips itself on its pair of broker and protocol is a failure where that broker is required.

Of most tests one pair runs before a merge (rotation.py), chosen without a look at the test: one that skips itself on
that pair would not run on any. `parametrize` names the pairs that a test can do.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.needs import required

from integration.groups import pair_of

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["problem", "pytest_runtest_makereport"]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Make a failure of such a skip."""
    report = yield
    pair = pair_of(item)
    found = problem(report, item.path, None if pair is None else pair[0])
    if found is not None:
        report.outcome, report.longrepr = "failed", found
    return report


def problem(report: pytest.TestReport, file: Path, broker: str | None) -> str | None:
    """Return why a skip is a failure, or None. `file`: the test's own; what skips elsewhere misses a broker or package.

    Other versions than the usual ones may lack what a test needs.
    """
    place = report.longrepr
    if not report.skipped or not isinstance(place, tuple) or Path(place[0]) != file or broker is None:
        return None
    # Which brokers run in containers is asked for by a variable of its own.
    if file.name == "test_containers.py" or _other_versions():
        return None
    if not required(broker) or not required("packages"):
        return None
    return (
        f"{place[2]}, at line {place[1]}: {broker} is required; name the pairs that can do it by parametrize"
    )


def _other_versions() -> bool:
    return any(value for name, value in os.environ.items() if name.startswith("REDELIVERY_VERSION"))

"""The page of invariants names modules and tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.ci("pages: each block, link and generated part")

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "invariants.md").read_text(encoding="utf-8")
ROWS = [line.strip("|\n").split("|") for line in PAGE.splitlines() if re.match(r"\| \d+ \|", line)]


def test_numbers() -> None:
    """Each invariant has a number of its own, and none of the first 45 is missing."""
    assert sorted(int(row[0]) for row in ROWS) == list(range(1, len(ROWS) + 1))
    assert len(ROWS) >= 45


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].strip())
def test_modules_and_tests(row: list[str]) -> None:
    """Each names a module or a folder of the library, and a test that exists."""
    _, statement, bound, shown = row
    assert statement.strip().endswith(".")
    modules = re.findall(r"`([\w/]+(?:\.py)?/?)`", bound)
    assert modules
    for module in modules:
        assert any((ROOT / folder / module).exists() for folder in ("client/redelivery", "adapters")), module
    tests = re.findall(r"`((?:tests|integration)/[\w/]+\.py)::(\w+)`", shown)
    assert tests
    for path, name in tests:
        assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), f"{path}::{name}"

"""The folders of the tests are the folders of the code."""

from __future__ import annotations

import pytest
from tests.house.source import ADAPTERS, ROOT

pytestmark = pytest.mark.ci("rules of the house: the whole code is read")

ELSEWHERE = {"pyspark_redelivery": "spark"}
"""A module of one line by which Spark finds the source."""


def without_tests(folders: set[str], tests: set[str]) -> set[str]:
    """Return the folders of the code that have no folder of tests."""
    return folders - tests


def test_each_folder_has_its_tests() -> None:
    """Each folder of the library, and each adapter, has a folder in `tests/`."""
    library = ROOT / "client" / "redelivery"
    folders = {path.name for path in library.iterdir() if (path / "__init__.py").exists()}
    folders |= {ELSEWHERE.get(name, name.removeprefix("redelivery_")) for name in ADAPTERS}
    tests = {path.name for path in (ROOT / "tests").iterdir() if any(path.glob("test_*.py"))}
    assert without_tests(folders, tests) == set()
    assert without_tests({"core", "new"}, {"core"}) == {"new"}

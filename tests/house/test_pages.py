"""Pages name files that exist."""

from __future__ import annotations

import re

import pytest
from tests.docs.pages import PAGES
from tests.house.source import ROOT, text

pytestmark = pytest.mark.ci("rules of the house: the whole code is read")

FOLDERS = ("client", "adapters", "tests", "integration", "benchmarks", "examples")


def missing(page: str, files: set[str]) -> list[str]:
    """Return the Python files that a page names in backquotes, and that do not exist in the project."""
    named = re.findall(r"`([\w/]+\.py)`", page)
    return [name for name in named if not any(f"/{each}".endswith(f"/{name}") for each in files)]


def test_pages_name_files_that_exist() -> None:
    """Each `file.py` in a page is a file of the project."""
    files = {
        path.relative_to(ROOT).as_posix() for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")
    }
    assert {
        page.relative_to(ROOT).as_posix(): found for page in PAGES if (found := missing(text(page), files))
    } == {}


def test_a_file_that_is_gone_is_found() -> None:
    """A missing file is found; names are matched from the right, by whole parts of the path."""
    assert missing("`keeper.py` `core/engine.py` `ngine.py`", {"client/core/engine.py"}) == [
        "keeper.py",
        "ngine.py",
    ]

"""Pages are short: each kind has its limit, and pages that are still too long are on a list that may only shrink."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from tests.docs.pages import PAGES, ROOT, prose

if TYPE_CHECKING:
    from pathlib import Path

LIST = ROOT / "tests" / "docs" / "long_pages.txt"
# Not rewritten yet. May only shrink.
LONG = LIST.read_text(encoding="utf-8").split()
README_LINES = 120
SECTION = 100
"""Words of prose in a section of a reference page."""
REFERENCE = ("docs/configuration.md", "docs/cli.md", "docs/errors.md", "docs/api/", "docs/spark/options.md")
# Words; the first prefix that fits counts.
LIMITS = {
    "docs/start.md": 600,
    "docs/index.md": 350,
    "docs/how-it-works.md": 1500,
    "docs/spark/how-it-works.md": 1500,
    "docs/spark/invariants.md": 2000,
    "docs/invariants.md": 2000,
    "docs/measured/": 2000,
    "docs/performance.md": 500,
    "docs/adapters.md": 1300,
    "": 900,
}
UNLIMITED = {"CHANGELOG.md", "benchmarks/README.md"}


def too_long(name: str, text: str) -> str | None:
    """Return by what a page exceeds the limit of its kind, or None."""
    if name == "README.md":
        lines = len(text.splitlines())
        return f"{lines} lines of {README_LINES}" if lines > README_LINES else None
    if name.startswith(REFERENCE):
        sections = re.split(r"^#+ ", _without_tables(prose(text)), flags=re.MULTILINE)
        longest = max(sections, key=lambda each: len(each.split()))
        words = len(longest.split())
        return f"{words} words of {SECTION}: {longest.splitlines()[0]}" if words > SECTION else None
    limit = next(limit for begin, limit in LIMITS.items() if name.startswith(begin))
    words = len(prose(text).split())
    return f"{words} words of {limit}" if words > limit else None


def _without_tables(text: str) -> str:
    return re.sub(r"^\|.*$", "", text, flags=re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_pages_are_short(page: Path) -> None:
    """A page does not exceed the limit of its kind, but for the pages of the list."""
    name = page.relative_to(ROOT).as_posix()
    found = None if name in UNLIMITED else too_long(name, page.read_text(encoding="utf-8"))
    assert name in LONG or found is None, found


def test_only_long_pages_are_listed() -> None:
    """Each page of the list is there, and is too long."""
    texts = {name: (ROOT / name).read_text(encoding="utf-8") for name in LONG}
    assert [name for name, text in texts.items() if too_long(name, text) is None] == []


def test_limits() -> None:
    """Blocks of code are not counted; a reference page is counted by section, without its tables."""
    code = "```text\n" + "word " * 1000 + "\n```\n"
    assert too_long("docs/ledger.md", code + "word " * 900) is None
    assert too_long("docs/ledger.md", "word " * 901) == "901 words of 900"
    assert too_long("README.md", "line\n" * 121) == "121 lines of 120"
    assert too_long("docs/cli.md", "# A\n" + "word " * 90 + "\n## B\n" + "word " * 90) is None
    assert (
        too_long("docs/cli.md", "# A\n## B\n" + "| word |\n" * 200 + "word " * 101) == "102 words of 100: B"
    )

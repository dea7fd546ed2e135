"""The pages of the documentation, and what of them is prose."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["GENERATED", "PAGES", "ROOT", "prose", "without_code"]

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "examples" / "README.md",
    ROOT / "benchmarks" / "README.md",
]
PAGES = [page for page in PAGES if "_build" not in page.parts]
GENERATED = re.compile(
    r"<!-- (?P<what>generated: \S+|file map:|made by runs:).*?-->.*?<!-- end of .*?-->", re.DOTALL
)
_FENCE = re.compile(r"^(?P<fence>```+|~~~+).*?^(?P=fence)$", re.MULTILINE | re.DOTALL)


def without_code(text: str) -> str:
    """Return a page without blocks of code, and without code in its lines but for headings."""
    lines = _FENCE.sub("", text).splitlines()
    return "\n".join(line if line.startswith("#") else re.sub(r"`[^`]*`", "", line) for line in lines)


def prose(text: str) -> str:
    """Return what a reader reads: the page without blocks of code, comments and generated parts."""
    return re.sub(r"<!--.*?-->", "", _FENCE.sub("", GENERATED.sub("", text)), flags=re.DOTALL)

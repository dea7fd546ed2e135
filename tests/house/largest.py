"""The ten largest files and the ten longest pages: `python -m tests.house.largest`.

A report, not a limit. The lines of a file are all of its lines; the words of a page are its prose, without code blocks
and generated parts.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tests.docs.pages import PAGES, prose
from tests.house.source import ALL_ROOTS, shown, sources, text

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["largest", "report"]


def largest(sizes: Mapping[str, int], number: int = 10) -> list[tuple[int, str]]:
    """Return the largest of these sizes with their names, the largest first."""
    return sorted(((size, name) for name, size in sizes.items()), key=lambda each: (-each[0], each[1]))[
        :number
    ]


def report() -> str:
    """Return the lines of the ten largest files, and the words of the ten longest pages."""
    files = largest({shown(path): len(text(path).splitlines()) for path in sources(*ALL_ROOTS)})
    pages = largest({shown(page): len(prose(text(page)).split()) for page in PAGES})
    rows = [*(f"{lines:5} lines  {name}" for lines, name in files), ""]
    return "\n".join([*rows, *(f"{words:5} words  {name}" for words, name in pages)])


if __name__ == "__main__":
    sys.stdout.write(report() + "\n")

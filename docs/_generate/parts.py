"""Parts of pages between two marks, and whole pages: read, replaced, compared."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from docs._generate.places import DOCS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["Part", "cell", "current", "table", "with_part"]


class Part(NamedTuple):
    """A generated part of a page. Without a name it is the whole page."""

    page: str
    name: str
    make: Callable[[], str]

    @property
    def path(self) -> Path:
        """Path of the page."""
        return DOCS / self.page


def marks(name: str) -> tuple[str, str]:
    """Return the comments before and after a part."""
    return f"<!-- generated: {name} (python -m docs._generate --write) -->", f"<!-- end of {name} -->"


def with_part(page: str, name: str, made: str) -> str:
    """Return a page with this text between the marks of a part.

    Raises:
        ValueError: The page does not have the marks.
    """
    begin, end = marks(name)
    before, mark, rest = page.partition(begin)
    _, mark_after, after = rest.partition(end)
    if not mark or not mark_after:
        raise ValueError(f"the page has no {begin} … {end}")
    return f"{before}{begin}\n\n{made.strip()}\n\n{end}{after}"


def current(part: Part) -> str:
    """Return the page as it is with the part made anew."""
    if not part.name:
        return part.make().strip() + "\n"
    return with_part(part.path.read_text(encoding="utf-8"), part.name, part.make())


def cell(text: str) -> str:
    """Return text as it is written in a cell of a table: on one line, bars escaped."""
    return re.sub(r"\s*\n\s*", " ", text).strip().replace("|", "\\|")


def table(head: list[str], rows: list[list[str]]) -> str:
    """Return a table of Markdown."""
    lines = [head, ["---"] * len(head), *([cell(each) for each in row] for row in rows)]
    return "\n".join(
        f"| {' | '.join(line)} |" if line[0] != "---" else f"|{'|'.join(line)}|" for line in lines
    )

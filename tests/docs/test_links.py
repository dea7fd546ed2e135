"""Links of the pages, as GitHub shows them, lead to files and headings of the repository."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

import pytest
from tests.docs.pages import PAGES, ROOT, without_code

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.ci("pages: each block, link and generated part")

LINK = re.compile(r"(?<!\\)\]\((?!\w+:)([^)\s]+)\)")


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    found: dict[str, int] = {}
    made = set()
    for title in re.findall(r"^#+ +(.*?) *$", without_code(page.read_text(encoding="utf-8")), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)|[`*]", r"\1", title).lower()
        name = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        number = found.get(name, 0)
        found[name] = number + 1
        made.add(f"{name}-{number}" if number else name)
    return frozenset(made)


def broken(page: Path) -> list[str]:
    """Return the links of a page that lead nowhere."""
    found = []
    for link in LINK.findall(without_code(page.read_text(encoding="utf-8"))):
        file, _, heading = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        known = target.exists() and (not heading or target.suffix != ".md" or heading in anchors(target))
        if not known:
            found.append(link)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_to_files(page: Path) -> None:
    """Each relative link leads to a file that is there, and to a heading of it."""
    assert broken(page) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    """A link to a missing file or heading is broken; one inside of code is none."""
    page = tmp_path / "page.md"
    page.write_text(
        "# A `b`: c?\n[x](gone.md) [y](#a-b-c) [z](#other) `[q](gone)`\n```\n[w](gone)\n```\n",
        encoding="utf-8",
    )
    assert broken(page) == ["gone.md", "#other"]

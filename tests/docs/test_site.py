"""The site is built without a warning, needs no network, and its links lead somewhere."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import pytest
from tests.docs.site import MISSING, ROOT, site
from tests.needs import skip_or_fail

if TYPE_CHECKING:
    from pathlib import Path

# The site is built once: 20 s of processor time.
pytestmark = [pytest.mark.ci("pages: each block, link and generated part"), pytest.mark.timeout(600)]

__all__ = ["site"]

if not MISSING:
    from docs._generate.sphinx_hooks import included

SECTIONS = ["Learn", "Do", "Dead letters", "Observe", "Spark", "Look up", "Understand", "Project"]


class Page(HTMLParser):
    """A page of the site: resources that it loads, its links, its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if "id" in given:
            self.anchors.add(given["id"])
        if tag in ("script", "img", "iframe", "source", "video", "audio") and given.get("src"):
            self.loads.append(given["src"])
        if tag == "link" and given.get("rel") in ("stylesheet", "preload", "icon", "preconnect", "manifest"):
            self.loads.append(given.get("href", ""))
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    """Return the pages of the site."""
    return {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}


def test_the_site_needs_no_network(site: Path, pages: dict[Path, Page]) -> None:
    """No page loads a script, a style sheet or a picture from another host, and no style sheet imports one."""
    loaded = {
        f"{path.name}: {address}"
        for path, page in pages.items()
        for address in page.loads
        if urlsplit(address).netloc
    }
    assert loaded == set()
    for path in site.rglob("*.css"):
        text = path.read_text(encoding="utf-8")
        assert re.findall(r"@import[^;]*//|url\(\s*['\"]?(?:https?:)?//", text) == [], path.name


def test_links_lead_somewhere(site: Path, pages: dict[Path, Page]) -> None:
    """Each link to a page or a file of the site finds it, and each anchor is there."""
    broken = [
        f"{path.relative_to(site)}: {link}"
        for path, page in pages.items()
        for link in page.links
        if not (found := urlsplit(link)).scheme and not _leads(path, found.path, found.fragment, pages)
    ]
    assert broken == []


def _leads(path: Path, to: str, anchor: str, pages: dict[Path, Page]) -> bool:
    target = (path.parent / unquote(to)).resolve() if to else path
    if target not in pages:
        return target.exists()
    return not anchor or unquote(anchor) in pages[target].anchors


def test_each_page_is_in_a_section(pages: dict[Path, Page], site: Path) -> None:
    """The navigation has its sections, in the order of the reader's needs."""
    text = (site / "index.html").read_text(encoding="utf-8")
    assert (
        re.findall(r'class="caption"[^>]*><span class="caption-text">([^<]*)<', text)[: len(SECTIONS)]
        == SECTIONS
    )


def test_pages_of_the_root_have_their_links_rewritten() -> None:
    """A page that only includes a file of the root has its text, with links as seen from `docs`."""
    if MISSING:
        skip_or_fail(MISSING)
    text = included((ROOT / "docs" / "contributing.md").read_text(encoding="utf-8"))
    assert "](test-brokers.md)" in text
    assert "](changelog.md)" in text
    assert included("# A page\n") == "# A page\n"

"""The pictures of the demo show what it prints now."""

from __future__ import annotations

import re

import pytest
from docs.make_picture import IMAGES, THEMES, demo_output, svg

pytestmark = pytest.mark.ci("pages: each block, link and generated part")


@pytest.fixture(scope="module")
def output() -> str:
    """The demo's output, with colours."""
    return demo_output()


def shown(picture: str) -> list[tuple[str, str]]:
    """Return the texts of a picture with their styles, in order; the height of the window depends on rich's version."""
    styles = dict(re.findall(r"^\.demo-(r\d+) \{ (.*) \}$", picture, re.MULTILINE))
    texts = re.findall(r'<text class="demo-(r\d+)"[^>]*>([^<]*)</text>', picture)
    return [(styles[style], text) for style, text in texts if text.strip()]


@pytest.mark.parametrize("name", THEMES)
def test_the_committed_pictures(output: str, name: str) -> None:
    """The files in docs/images show what `python -m docs.make_picture` makes."""
    committed = shown((IMAGES / f"demo-{name}.svg").read_text(encoding="utf-8"))
    assert shown(svg(output, THEMES[name])) == committed
    assert len(committed) > 40


@pytest.mark.parametrize("name", THEMES)
def test_nothing_is_loaded(name: str) -> None:
    """A picture needs no font, style or image of another file or host."""
    picture = (IMAGES / f"demo-{name}.svg").read_text(encoding="utf-8")
    assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)\S+|@import|@font-face|url\((?!#)", picture) == []


def test_what_it_shows(output: str) -> None:
    """The demo redelivers after 400, 800 and 1600 ms, and dead-letters with the cause."""
    plain = re.sub(r"\x1b\[[\d;]*m", "", output)
    rows = re.findall(
        r"^\d\.\d+ s (order-\d)  (\d) of 4 +(\d+ ms)?.* (done|→ DLQ|in \d+ ms)$", plain, re.MULTILINE
    )
    assert rows[-1] == ("order-3", "4", "1600 ms", "→ DLQ")
    assert [row[0] for row in rows if row[3] == "done"] == ["order-1", "order-2"]
    assert "order-3  queue://orders         4  ValueError: no item" in plain
    assert "✗ order" not in plain

"""The pictures of the demo show what it prints now."""

from __future__ import annotations

import re

import pytest
from docs.make_picture import IMAGES, THEMES, demo_output, svg


@pytest.fixture(scope="module")
def output() -> str:
    """The demo's output, with colours."""
    return demo_output()


@pytest.mark.parametrize("name", THEMES)
def test_the_committed_pictures(output: str, name: str) -> None:
    """The files in docs/images are what `python -m docs.make_picture` makes."""
    assert svg(output, THEMES[name]) == (IMAGES / f"demo-{name}.svg").read_text(encoding="utf-8")


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

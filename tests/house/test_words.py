"""Prose uses plain words: docstrings, comments, log lines, errors and pages have none of the banned ones."""

from __future__ import annotations

import subprocess
import sys

from tests.house.source import ROOT
from tests.house.words import found, found_in_page, found_in_python

FOLDERS = (
    "client",
    "adapters",
    "tests",
    "integration",
    "benchmarks",
    "examples",
    "docs",
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
)


def test_no_banned_words() -> None:
    """No module and no page has a banned word."""
    assert [str(place) for place in found([ROOT / name for name in FOLDERS], ROOT)] == []


def test_words_in_code() -> None:
    """Docstrings, comments, log calls and raised errors are searched; code in backquotes is not."""
    source = '''
"""Learn what is there."""

def begin():
    """Return `told`."""
    # Nobody is here, it comes
    # again.
    logger.info("the message is meant")
    raise ValueError(f"{name} at all")

told = "told"
'''
    words = [(place.line, place.word) for place in found_in_python(source, "it.py")]
    assert words == [(2, "Learn"), (6, "Nobody"), (6, "comes\nagain"), (8, "meant"), (9, "at all")]


def test_words_in_pages() -> None:
    """A page is searched, except its code blocks."""
    page = "Nobody.\n```\nNobody\n```\nIt is `told`, so it is “told”.\n"
    assert [(place.line, place.word) for place in found_in_page(page, "it.md")] == [
        (1, "Nobody"),
        (5, ", so "),
    ]


def test_starts() -> None:
    """A docstring does not begin with Have, What or Whether."""
    source = '"""Whether it ends."""\nclass A:\n    """What is there."""\n    x = 1\n    """Have it."""\n'
    assert [place.word for place in found_in_python(source, "it.py")] == ["Whether", "What", "Have"]


def test_command() -> None:
    """`python -m tests.house.words` prints each place, and their number."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.house.words", "tests/house/words.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout == "0 places\n"

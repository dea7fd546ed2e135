"""The finder of banned words in docstrings, comments, log lines, errors and pages, and its command."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.house import words
from tests.house.words import found_in_page, found_in_python, main

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.ci("rules of the house: the whole code is read")


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


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`python -m tests.house.words` prints each place and their number; hidden folders are not searched."""
    monkeypatch.setattr(words, "ROOT", tmp_path)
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "other.py").write_text("# Nobody\n", encoding="utf-8")
    (tmp_path / "it.py").write_text("# A consumer\n", encoding="utf-8")
    assert main([]) == 0
    (tmp_path / "it.py").write_text("# Nobody\n", encoding="utf-8")
    assert main([]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["0 places", "it.py:1: 'Nobody': no consumer, no thread, no one program", "1 places"]


def test_changed_files_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--changed` searches the files that differ, and of these only the files of the given folders."""
    monkeypatch.setattr(words, "ROOT", tmp_path)

    def changed(revision: str, root: Path) -> set[str]:
        return {"docs/a.md"} if (revision, root) == ("main", tmp_path) else set()

    monkeypatch.setattr(words, "changed_files", changed)
    (tmp_path / "docs").mkdir()
    for name in ("docs/a.md", "docs/b.md", "c.md"):
        (tmp_path / name).write_text("Nobody\n", encoding="utf-8")
    assert words.chosen([], "main") == [tmp_path / "docs" / "a.md"]
    assert words.chosen([tmp_path / "c.md"], "main") == []
    assert words.chosen([tmp_path / "c.md"], None) == [tmp_path / "c.md"]

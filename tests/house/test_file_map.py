"""The documentation's file map is made from the files."""

from __future__ import annotations

import ast

import pytest
from tests.house.file_map import BEGIN, END, PAGE, file_map, first_line, in_page, rows_of, with_map
from tests.house.source import SOURCE_ROOTS, shown, sources, tree

pytestmark = pytest.mark.ci("rules of the house: the whole code is read")


def test_the_file_map_is_as_the_files_are() -> None:
    """The file map of the page is up to date; `python -m tests.house.file_map --write` writes it."""
    assert in_page(PAGE.read_text(encoding="utf-8")) == file_map()


def test_each_file_says_what_is_in_it() -> None:
    """Each file has a docstring whose first line is not empty."""
    assert [shown(path) for path in sources(*SOURCE_ROOTS) if not first_line(tree(path))] == []
    assert first_line(ast.parse("x = 1")) == ""


def test_a_page_gets_its_map() -> None:
    """A new map changes only the text between the marks; a page without marks is refused."""
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    made = rows_of("client/a", {"__init__": "A.", "b": "This | that."})
    written = with_map(page, made)
    assert in_page(written) == made
    assert (written.startswith("before\n"), written.endswith("\nafter\n")) == (True, True)
    assert "| `b` | This \\| that. |" in made
    with pytest.raises(ValueError, match="no <!--"):
        with_map("nothing", made)

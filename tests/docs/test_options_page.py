"""The page of URI options agrees with the parser's table."""

from __future__ import annotations

from pathlib import Path

from tests.for_each import for_each

from redelivery.uri.option_table import option_rows

PAGE = (Path(__file__).parents[2] / "docs" / "options.md").read_text(encoding="utf-8")


@for_each(option_rows())
def test_every_option_is_on_the_page(row: tuple[str, ...]) -> None:
    """Each option is on the page, with the values of the parser."""
    name, takes, default, over, doc = row

    assert f"| `{name}` | {takes} | {default} | {over} | {doc.replace('|', chr(92) + '|')} |" in PAGE


def test_the_page_has_no_other_option() -> None:
    """No row of the page names an option that the parser does not know."""
    rows = [line.split("`")[1] for line in PAGE.splitlines() if line.startswith("| `")]

    assert rows == [row[0] for row in option_rows()]

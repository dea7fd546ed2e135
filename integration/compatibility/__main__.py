"""Prints the tables of docs/brokers.md; `--write` puts them into the page."""

from __future__ import annotations

import sys

from integration.compatibility.page import PAGE, drawn, with_tables
from integration.compatibility.record import known


def main() -> None:
    """Print the tables, or write them."""
    tables = drawn(known())
    if "--write" in sys.argv[1:]:
        PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8"), tables), encoding="utf-8")
    else:
        print(tables)


if __name__ == "__main__":
    main()

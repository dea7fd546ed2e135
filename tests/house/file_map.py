"""File map of the documentation: each folder, each file, and the first line of its docstring.

`python -m tests.house.file_map --write` writes the map between its two marks; without `--write` it is printed.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict

from tests.house.source import ROOT, SOURCE_ROOTS, sources, tree

__all__ = ["PAGE", "file_map", "in_page", "rows_of", "with_map"]

PAGE = ROOT / "docs" / "how-it-works.md"
BEGIN = "<!-- file map: python -m tests.house.file_map --write -->"
END = "<!-- end of the file map -->"


def file_map() -> str:
    """Return the map of the library and the adapters: a heading and a table for each folder."""
    folders: dict[str, dict[str, str]] = defaultdict(dict)
    for path in sources(*SOURCE_ROOTS):
        folders[path.parent.relative_to(ROOT).as_posix()][path.stem] = first_line(tree(path))
    return "\n\n".join(rows_of(folder, files) for folder, files in sorted(folders.items()))


def first_line(code: ast.Module) -> str:
    """Return the first line of a module's docstring."""
    return (ast.get_docstring(code) or "").partition("\n")[0]


def rows_of(folder: str, files: dict[str, str]) -> str:
    """Return the text for one folder."""
    heading = f"**`{folder}/`** {files.get('__init__', '')}".rstrip()
    rows = [f"| `{name}` | {_cell(line)} |" for name, line in files.items() if name != "__init__"]
    return "\n".join([heading, "", "| file | what is in it |", "|---|---|", *rows] if rows else [heading])


def _cell(line: str) -> str:
    return line.replace("|", "\\|")


def in_page(page: str) -> str:
    """Return the map that a page has between the marks."""
    return page.partition(BEGIN)[2].partition(END)[0].strip()


def with_map(page: str, made: str) -> str:
    """Return a page with this map between its marks."""
    start, mark, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise ValueError(f"the page has no {BEGIN} … {END}")
    return f"{start}{BEGIN}\n\n{made}\n\n{END}{after}"


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        PAGE.write_text(with_map(PAGE.read_text(encoding="utf-8"), file_map()), encoding="utf-8")
    else:
        sys.stdout.write(file_map() + "\n")

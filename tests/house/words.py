"""Finder of words that the project's prose does not use, in code and in pages; see `CONTRIBUTING.md`.

`python -m tests.house.words [PATH…]` prints each place in these files and folders, by default in the whole project;
`--changed [REVISION]` searches only files that differ from the revision. The exit code is 1 if there is a place.
Prose is docstrings, comments, the strings of log calls and of `raise`, and pages without their code blocks and quotes
of code.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.changed_files import changed_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["Place", "chosen", "found", "found_in_page", "found_in_python", "main"]

ROOT = Path(__file__).parents[2]

# A word that readers had to read twice, and what is written instead.
BANNED = {
    # As an argument's name (`told:`) and an option's value (`=told`) it stays.
    r"(?<!=)\b(told(?!:)|tells?|telling)\b": "reports, returns, sends, marks",
    r"\bwhoever\b": "name the thing that acts",
    r"\bnobody\b": "no consumer, no thread, no one program",
    r"\b(comes?|came|coming) again\b": "is redelivered, is delivered again",
    r"\b(comes?|came) to (its|their) end\b": "ends",
    r"\bfor company\b": "together with",
    r"\bmeant\b": "matched, intended",
    r"\bjudg(e|es|ed)\b": "decides",
    r"\bforsak(e|es|en)\b": "drops, leaves",
    r"\bbur(y|ies|ied)\b": "dead-letters",
    r"\b(legacy|heirs?|custody)\b": "name the thing",
    r"\bblam(e|es|ed)\b": "names as the cause",
    r"\bin hand\b": "unsettled, being written",
    r"\bbesides\b": "also",
    r"\bas (it stands|they stand)\b": "unchanged",
    r"\bat all\b": "leave it out",
    r"\bfaults? of ours\b": "a fault of this library",
    r"\bthe very\b": "the same",
    r"[,;:] so (?!that\b|as\b|far\b|long\b|many\b|much\b)": "a second sentence",
}
# The first words of a sentence or a docstring.
BANNED_STARTS = {
    r"(Learn|Know|Let|Have|Take note|Say|Tell)\b": "a noun, or what the function does",
    r"(What|Whoever|Who)\b(?![^.]*\?)": "a noun: 'Messages that …'",
    r"Whether\b": "True if …",
}
_BANNED = {re.compile(pattern, re.IGNORECASE): better for pattern, better in BANNED.items()}
_STARTS = {re.compile(pattern): better for pattern, better in BANNED_STARTS.items()}
_CODE = re.compile(r"`[^`]*`")
_QUOTED = re.compile(r"“[^”]*”")
NOT_SEARCHED = {"_build", "build", "dist"}
_LOG_CALLS = {"debug", "info", "warning", "error", "exception", "critical", "log"}


@dataclass(frozen=True, order=True)
class Place:
    """A banned word in a file."""

    path: str
    line: int
    word: str
    better: str

    def __str__(self) -> str:
        """`PATH:LINE: 'word': what to write instead`."""
        return f"{self.path}:{self.line}: {self.word!r}: {self.better}"


def found(paths: Iterable[Path], root: Path) -> list[Place]:
    """Return the places in these files, and in the files of these folders, in order."""
    places: list[Place] = []
    for each in (file for path in paths for file in _files(path)):
        name = each.relative_to(root).as_posix()
        if each.suffix == ".py":
            places += found_in_python(each.read_text(encoding="utf-8"), name)
        elif each.suffix == ".md":
            places += found_in_page(each.read_text(encoding="utf-8"), name)
    return places


def _files(path: Path) -> Iterator[Path]:
    """Yield a file, or the files below a folder, without hidden folders (environments, caches) and built pages."""
    if not path.is_dir():
        yield path
        return
    for each in sorted(path.iterdir()):
        if not each.name.startswith(".") and each.name not in NOT_SEARCHED:
            yield from _files(each)


def found_in_python(source: str, name: str) -> list[Place]:
    """Return the places in the prose of a module."""
    code = ast.parse(source)
    places = [place for line, text in _strings(code) for place in _in_text(text, name, line)]
    for line, text in _docstrings(code):
        places += _in_text(text, name, line)
        places += _starts(text, name, line)
    for line, text in _comments(source):
        places += _in_text(text, name, line)
    return sorted(set(places))


def found_in_page(page: str, name: str) -> list[Place]:
    """Return the places in a page, without its code blocks."""
    places: list[Place] = []
    fence = ""
    for number, line in enumerate(page.splitlines(), 1):
        opened = re.match(r"\s*(```+|~~~+)", line)
        if opened and not fence:
            fence = opened[1]
        elif fence:
            fence = "" if line.strip() == fence else fence
        else:
            places += _in_text(line, name, number)
    return places


def _docstrings(code: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(code):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.If):
            body = node.body
        else:
            continue
        for each in body:
            if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant):
                value = each.value.value
                if isinstance(value, str):
                    yield each.lineno, value


def _comments(source: str) -> Iterator[tuple[int, str]]:
    """Blocks of comments that follow each other, as one text: a phrase may be broken between two lines."""
    block: list[str] = []
    first, last = 0, -1
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        line = token.start[0]
        if line != last + 1:
            if block:
                yield first, "\n".join(block)
            block, first = [], line
        block.append(token.string.lstrip("# "))
        last = line
    if block:
        yield first, "\n".join(block)


def _strings(code: ast.Module) -> Iterator[tuple[int, str]]:
    """The texts of log calls and of exceptions that are raised."""
    for node in ast.walk(code):
        if isinstance(node, ast.Raise) and node.exc is not None:
            yield from _constants(node.exc)
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in _LOG_CALLS
        ):
            yield from _constants(node)


def _constants(node: ast.AST) -> Iterator[tuple[int, str]]:
    for each in ast.walk(node):
        if isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield each.lineno, each.value


def _in_text(text: str, name: str, line: int) -> Iterator[Place]:
    # As many characters as before: a place keeps its line.
    plain = _QUOTED.sub(_blank, _CODE.sub(_blank, text))
    for pattern, better in _BANNED.items():
        for match in re.finditer(pattern.pattern.replace(" ", r"\s+"), plain, re.IGNORECASE):
            yield Place(name, line + plain.count("\n", 0, match.start()), match[0], better)


def _starts(text: str, name: str, line: int) -> Iterator[Place]:
    for pattern, better in _STARTS.items():
        if match := pattern.match(text.strip()):
            yield Place(name, line, match[0], better)


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", "_", match[0])


def main(given: Sequence[str] | None = None) -> int:
    """Print the places and their number; return the exit code."""
    summary, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser("python -m tests.house.words", description=summary, epilog=rest)
    parser.add_argument(
        "paths", nargs="*", type=Path, metavar="PATH", help="file or folder (default: the project)"
    )
    parser.add_argument(
        "--changed",
        nargs="?",
        const="HEAD",
        metavar="REVISION",
        help="only files that differ from the revision (default HEAD), are not committed or not added",
    )
    options = parser.parse_args(given)
    try:
        paths = chosen(options.paths, options.changed)
    except ValueError as error:
        parser.error(str(error))
    places = found(paths, ROOT)
    sys.stdout.write("".join(f"{place}\n" for place in places) + f"{len(places)} places\n")
    return int(bool(places))


def chosen(paths: Sequence[Path], changed: str | None) -> list[Path]:
    """Return the files and folders to search; with `changed` only those of its files that are in `paths`."""
    within = [path.resolve() for path in paths] or [ROOT]
    for path in within:
        if not path.is_relative_to(ROOT) or not path.exists():
            raise ValueError(f"{path} is not a file or folder of the project")
    if changed is None:
        return within
    files = sorted(ROOT / name for name in changed_files(changed, ROOT))
    return [file for file in files if any(file.is_relative_to(path) for path in within)]


if __name__ == "__main__":
    sys.exit(main())
